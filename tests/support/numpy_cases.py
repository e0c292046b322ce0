"""numpy's own test cases of einsum, as data.

From numpy/_core/tests/test_einsum.py (numpy 2.4). Left out are those of object arrays, which are
refused here, and those of `einsum_path`. Extents of the letters are numpy's, unless shapes are
given.
"""

SIZES = dict(zip("abcdefghij", (2, 3, 4, 5, 4, 3, 2, 6, 5, 4), strict=True))

# test_einsum_errors and test_einsum_specific_errors: subscripts and the operands' shapes, where
# an int is a number.
ERRORS = [
    ("", []),
    ("", [(), ()]),
    (",", [(), (1,), (1,)]),
    (",", [(1,)]),
    ("i", [()]),
    ("ij", [(2,)]),
    ("...i", [()]),
    ("i...j", [(2,)]),
    ("i...", [()]),
    ("ij...", [(2,)]),
    ("i..", [(2,)]),
    (".i...", [(2,)]),
    ("j->..j", [(2,)]),
    ("j->.j...", [(2,)]),
    ("i%...", [(2,)]),
    ("...j$", [(2,)]),
    ("i->&", [(2,)]),
    ("i->ij", [(2,)]),
    ("ij->jij", [(2, 2)]),
    ("ii", [(2, 3)]),
    ("ii->i", [(2, 3)]),
    ("aabcb,abc", [(3, 3, 4, 5, 6), (3, 4, 5)]),
    ("i", [(2, 3)]),
    ("i->i", [(6, 1)]),
    # test_subscript_range, as text
    ("a\x7b,b", [(2, 3), (3, 4)]),
]

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


def list_sums(n: int) -> list[tuple[str, list[tuple[int, ...]]]]:
    """The cases of check_einsum_sums for one of the sizes that it tries."""
    return [
        ("i->", [(n,)]),
        ("...i->...", [(2, 3, n)]),
        ("i...->...", [(2, n)]),
        ("i...->...", [(2, 3, n)]),
        ("ii", [(n, n)]),
        ("..., ...", [(), ()]),
        ("..., ...", [(3, n), (2, 3, n)]),
        ("...i, ...i", [(2, 3, n), (n,)]),
        ("i..., i...", [(n, 3, 2), (n,)]),
        ("i,j", [(3,), (n,)]),
        ("ij, j", [(4, n), (n,)]),
        ("ji,j", [(n, 4), (n,)]),
        ("ij,jk", [(4, n), (n, 6)]),
        ("...,...", [(n,), (n,)]),
        ("i,i", [(n,), (n,)]),
        ("i,->i", [(n,), ()]),
        (",i->i", [(), (n,)]),
        ("i,->", [(n,), ()]),
        (",i->", [(), (n,)]),
    ]


# The rest of check_einsum_sums, and the tests from test_einsum_misc to test_different_paths.
SHAPED = [
    ("ij,jk,kl", [(3, 4), (4, 5), (5, 6)]),
    ("ijk, jil -> kl", [(3, 4, 5), (4, 3, 2)]),
    ("z,mz,zm->", [(2,), (2, 2), (2, 2)]),
    ("ij,ij->j", [(10, 2), (1, 2)]),
    ("i, i", [(2,), (1,)]),
    ("...ij,...jk->...ik", [(1, 5), (1, 5)]),
    ("...ij,...jk->...ik", [(1, 5), (5, 5)]),
    ("ji,i->", [(2, 2), (2,)]),
    ("i,ij->", [(2,), (2, 2)]),
    ("ij,i->", [(2, 2), (2,)]),
    ("ij...,j...->i...", [(1, 2), (2, 2, 1)]),
    ("...i,...i", [(3,), (3,)]),
    ("ijklm,ijn,ijn->", [(5, 12, 4, 2, 3), (5, 12, 11), (5, 12, 11)]),
    ("ijklm,ijn->", [(5, 12, 4, 2, 3), (5, 12, 11)]),
    ("x,yx,zx->xzy", [(2,), (2, 2), (4, 2)]),
    ("ijk,j->ijk", [(2, 3, 4), (3,)]),
    ("ij...,j...->ij...", [(2, 3, 4), (3,)]),
    ("ij...,...j->ij...", [(2, 3, 4), (3,)]),
    ("ij...,j->ij...", [(2, 3, 4), (3,)]),
    ("ik,kj->ij", [(4, 3), (3, 2)]),
    ("ik...,k...->i...", [(4, 3), (3, 2)]),
    ("ik...,...kj->i...j", [(4, 3), (3, 2)]),
    ("...k,kj", [(4, 3), (3, 2)]),
    ("ik,k...->i...", [(4, 3), (3, 2)]),
    ("ijkl,k->ijl", [(2, 3, 4, 5), (4,)]),
    ("ijkl,k", [(2, 3, 4, 5), (4,)]),
    ("...kl,k", [(2, 3, 4, 5), (4,)]),
    ("...kl,k...", [(2, 3, 4, 5), (4,)]),
    ("...lmn,...lmno->...o", [(1, 1, 1, 16, 16, 12), (16, 16, 12, 3)]),
    ("...lmn,lmno->...o", [(1, 1, 1, 16, 16, 12), (16, 16, 12, 3)]),
    ("cl, cpx->lpx", [(2, 3), (2, 3, 2731)]),
    ("cl, cpxy->lpxy", [(3, 3), (3, 3, 64, 64)]),
    ("aabb->ab", [(5, 5, 5, 5)]),
    ("ijij->", [(10, 10, 10, 10)]),
    ("mi,mi,mi->m", [(5, 5), (5, 5), (5, 5)]),
    ("im,im,im->m", [(5, 5), (5, 5), (5, 5)]),
    ("ij,jk->ik", [(2, 2), (2, 2)]),
    ("i,i->i", [(7,), (7,)]),
    ("i,i,i->", [(5,), (5,), (5,)]),
    ("i,i,i,i->", [(5,), (5,), (5,), (5,)]),
    ("...ij,...jk->...ik", [(2, 1, 1), (2, 1, 1)]),
    ("bbcdc->d", [(1, 1, 3, 1, 3)]),
    # test_broadcasting_dot_cases
    ("ijk,kl,jl", [(1, 5, 4), (4, 6), (5, 6)]),
    ("ijk,kl,jl,i->i", [(1, 5, 4), (4, 6), (5, 6), (10,)]),
    ("abjk,kl,jl", [(1, 1, 5, 4), (4, 6), (5, 6)]),
    ("abjk,kl,jl,ab->ab", [(1, 1, 5, 4), (4, 6), (5, 6), (7, 7)]),
    ("obk,ijk->ioj", [(2, 4, 8), (2, 4, 8)]),
    # test_output_order
    ("...ft,mf->...mt", [(2, 3, 5), (4, 3)]),
    # test_singleton_broadcasting
    ("ijp,ipq,ikq->ijk", [(3, 1, 1), (3, 1, 3), (1, 3, 3)]),
    ("jhcabhijaci,dfijejgh->fgje", [(1, 1, 1, 1, 3, *(1,) * 6), (3, 1, 3, 1, 1, 1, 1, 2)]),
    ("baegffahgc,hdggeff->dhg", [(2, 1, 4, 1, 1, 1, 1, 2, 1, 1), (1, 1, 1, 1, 4, 1, 1)]),
    ("cehgbaifff,fhhdegih->cdghbi", [(1,) * 10, (2, 1, 1, 2, 4, 1, 1, 1)]),
    ("gah,cdbcghefg->ef", [(2, 3, 1), (1, 3, 1, 1, 1, 2, 1, 4, 1)]),
    ("cacc,bcb->", [(1, 1, 1, 1), (1, 4, 1)]),
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
