"""Cases of numpy's own tests of einsum, as data, for what is asked of them beside.

From numpy/_core/tests/test_einsum.py (numpy 2.4), with its extents of the letters.
"""

SIZES = dict(zip("abcdefghij", (2, 3, 4, 5, 4, 3, 2, 6, 5, 4), strict=True))

# test_einsum_views: an array of one operand, and what is a view of it.
VIEWS = [
    ((2, 3), ("...", "ij", "ji")),
    ((3, 3), ("ii->i",)),
    (
        (3, 3, 3),
        (
            *("...ii->...i", "ii...->...i", "...ii->i...", "jii->ij", "ii...->i...", "i...i->i..."),
            *("i...i->...i", "iii->i"),
        ),
    ),
    ((2, 3, 4), ("ijk->jik",)),
]

# What TestEinsum and TestEinsumPath compare for several orders of contraction, with SIZES.
NETWORKS = [
    *("a,ab,abc->abc", "a,b,ab->ab", "ea,fb,gc,hd,abcd->efgh", "ea,fb,abcd,gc,hd->efgh"),
    *("abcd,ea,fb,gc,hd->efgh", "acdf,jbje,gihb,hfac,gfac,gifabc,hfac"),
    *("cd,bdhe,aidb,hgca,gc,hgibcd,hgac", "abhe,hidj,jgba,hiab,gab"),
    *("bde,cdh,agdb,hica,ibd,hgicd,hiac", "chd,bde,agbc,hiad,hgc,hgi,hiad"),
    *("chd,bde,agbc,hiad,bdi,cgh,agdb", "bdhe,acad,hiab,agac,hibd"),
    *("ab,ab,c->", "ab,ab,c->c", "ab,ab,cd,cd->", "ab,ab,cd,cd->ac", "ab,ab,cd,cd->cd"),
    *("ab,ab,cd,cd,ef,ef->", "ab,cd,ef->abcdef", "ab,cd,ef->acdf", "ab,cd,de->abcde"),
    *("ab,cd,de->be", "ab,bcd,cd->abcd", "ab,bcd,cd->abd", "eb,cb,fb->cef"),
    *("dd,fb,be,cdb->cef", "bca,cdb,dbf,afc->", "dcc,fce,ea,dbf->ab", "fdf,cdd,ccd,afe->ae"),
    *("abcd,ad", "ed,fcd,ff,bcf->be", "baa,dcf,af,cde->be", "bd,db,eac->ace"),
    *("fff,fae,bef,def->abd", "efc,dbc,acf,fd->abe", "ba,ac,da->bcd", "ab,ab", "ab,ba"),
    *("abc,abc", "abc,bac", "abc,cba", "aab,fa,df,ecc->bde", "ecb,fef,bad,ed->ac"),
    *("bcf,bbb,fbf,fc->", "bb,ff,be->e", "bcb,bb,fc,fff->", "fbb,dfd,fc,fc->"),
    *("afd,ba,cc,dc->bf", "adb,bc,fa,cfc->d", "bbd,bda,fc,db->acf", "dba,ead,cad->bce"),
    *("aef,fbc,dca->bde", "acdf,jbje,gihb,hfac", "a,b,c->abc", "cab,cdd->ab"),
]
