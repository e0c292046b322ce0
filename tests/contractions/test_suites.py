import re
from math import prod

import pytest

from tilesolve.contractions.errors import SuiteError
from tilesolve.contractions.problem import Problem
from tilesolve.contractions.suites import list_suites, suite

# Table 4 of doi:10.1145/3295500.3356218 as printed; two rows have an f that is in no tensor.
TCCG = """
ab-acd-dbc a:312 b:312 c:312 d:312
ab-cad-dcb a:312 b:312 c:312 d:312
abc-acd-db a:312 b:312 c:312 d:312
abc-ad-bdc a:312 b:312 c:312 d:312
abc-adc-bd a:312 b:312 c:312 d:312
abc-adc-db a:312 b:312 c:312 d:312
abc-bda-dc a:312 b:312 c:24 d:312
abcd-aebf-dfce a:72 b:72 c:72 d:72 e:72 f:72
abcd-aebf-fdec a:72 b:72 c:72 d:72 e:72 f:72
abcd-aecf-bfde a:72 b:72 c:72 d:72 e:72 f:72
abcd-aecf-fbed a:72 b:72 c:72 d:72 e:72 f:72
abcd-aedf-bfce a:72 b:72 c:72 d:72 e:72 f:72
abcd-aedf-fbec a:72 b:72 c:72 d:72 e:72 f:72
abcd-aefb-fdce a:72 b:72 c:72 d:72 e:72 f:72
abcd-aefc-fbed a:72 b:72 c:72 d:72 e:72 f:72
abcd-dbea-ec a:72 b:72 c:72 d:72 e:72 f:72
abcd-deca-be a:72 b:72 c:72 d:72 e:72 f:72
abcd-ea-ebcd a:72 b:72 c:72 d:72 e:72
abcd-eafb-fdec a:72 b:72 c:72 d:72 e:72 f:72
abcd-eafc-bfde a:72 b:72 c:72 d:72 e:72 f:72
abcd-eafd-fbec a:72 b:72 c:72 d:72 e:72 f:72
abcd-eb-aecd a:72 b:72 c:72 d:72 e:72
abcd-ebad-ce a:72 b:72 c:24 d:72 e:72
abcd-ec-abed a:72 b:72 c:72 d:72 e:72
abcde-ecbfa-fd a:48 b:32 c:32 d:24 e:48 f:48
abcde-efbad-cf a:48 b:32 c:24 d:32 e:48 f:32
abcde-efcad-bf a:48 b:24 c:32 d:32 e:48 f:32
abcdef-dega-gfbc a:24 b:16 c:16 d:24 e:16 f:16 g:24
abcdef-degb-gfac a:24 b:16 c:16 d:24 e:16 f:16 g:24
abcdef-degc-gfab a:24 b:16 c:16 d:24 e:16 f:16 g:24
abcdef-dfga-gebc a:24 b:16 c:16 d:24 e:16 f:16 g:24
abcdef-dfgb-geac a:24 b:16 c:16 d:24 e:16 f:16 g:24
abcdef-dfgc-geab a:24 b:16 c:16 d:24 e:16 f:16 g:24
abcdef-efga-gdbc a:24 b:16 c:16 d:24 e:16 f:16 g:24
abcdef-efgb-gdac a:24 b:16 c:16 d:24 e:16 f:16 g:24
abcdef-efgc-gdab a:24 b:16 c:16 d:24 e:16 f:16 g:24
"""

# Fig. 8 of the TTile paper as printed: K, C, H/W, R/S; a star is stride 2.
CONVOLUTIONS = {
    "yolo9000": """
Yolo9000-0 32, 3, 544, 3
Yolo9000-2 64, 32, 272, 3
Yolo9000-4 128, 64, 136, 3
Yolo9000-5 64, 128, 136, 1
Yolo9000-8 256, 128, 68, 3
Yolo9000-9 128, 256, 68, 1
Yolo9000-12 512, 256, 34, 3
Yolo9000-13 256, 512, 34, 1
Yolo9000-18 1024, 512, 17, 3
Yolo9000-19 512, 1024, 17, 1
Yolo9000-23 28269, 1024, 17, 1
""",
    "resnet18": """
ResNet18-1* 64, 3, 224, 7
ResNet18-2 64, 64, 56, 3
ResNet18-3 64, 64, 56, 1
ResNet18-4* 128, 64, 56, 3
ResNet18-5* 128, 64, 56, 1
ResNet18-6 128, 128, 28, 3
ResNet18-7* 256, 128, 28, 3
ResNet18-8 256, 128, 28, 3
ResNet18-9 256, 256, 14, 3
ResNet18-10* 512, 512, 14, 3
ResNet18-11* 512, 256, 14, 1
ResNet18-12 512, 512, 7, 3
""",
}

# Table 1 of the PolyDL paper: workload, M, N, K.
GEMM = """
GNMT 128 2048 4096
GNMT 320 3072 4096
GNMT 2048 4096 32
DeepBench 1024 16 500000
Synthetic 4096 4096 4096
Synthetic 1024 1024 32768
Synthetic 1024 32768 1024
Synthetic 32768 1024 1024
"""

# The layers that the PolyDL paper measures: rows and columns of the image, then for each layer
# channels > filters, taps of a side, s and stride, p and zeros on each side.
NETWORKS = {
    "resnet50": """
56x56 64>256,1 64>64,1 64>64,3p1 256>64,1 256>512,1s2 256>128,1s2
28x28 128>128,3p1 128>512,1 512>128,1 512>1024,1s2 512>256,1s2
14x14 256>256,3p1 256>1024,1 1024>256,1 1024>2048,1s2 1024>512,1s2
7x7 512>512,3p1 512>2048,1 2048>512,1
""",
    "fastrcnn": """
150x188 64>64,1 64>64,3p1 64>256,1 256>64,1
152x190 64>64,3s2
75x94 64>256,1 256>128,1 256>512,1 128>128,3p1 128>512,1 512>128,1
77x96 128>128,3s2
38x47 128>512,1 512>256,1 256>256,3p1 256>1024,1 512>1024,1 1024>256,1 1024>512,3p1 512>48,1
7x7 1024>512,1 512>512,3p1 512>2048,1 1024>2048,1 2048>512,1
""",
    "maskrcnn": """
256x256 64>256,1 64>64,1 64>64,3p1 256>64,1 256>128,1s2 256>256,1 256>512,1s2
128x128 128>128,3p1 128>512,1 512>128,1 512>256,1s2
64x64 256>256,3p1 256>1024,1
128x128 512>256,1 512>1024,1s2
64x64 1024>256,1 1024>2048,1s2 1024>512,1s2
32x32 512>512,3p1 512>2048,1 2048>512,1 2048>256,1 256>256,3p1 256>512,3p1
16x16 256>512,3p1
64x64 256>512,3p1
128x128 256>256,3p1 256>512,3p1
256x256 256>256,3p1 256>512,3p1
7x7 256>1024,7
1x1 1024>1024,1
14x14 256>256,3p1
28x28 256>256,2s2
""",
}


def rows(table):
    return table.strip().splitlines()


def test_tccg_is_the_paper_s_table():
    """All 36 contractions, in order, with the flops that the table's extents give."""
    found = suite("tccg")
    assert len(found) == 36
    for row, (name, problem) in zip(rows(TCCG), found.items(), strict=True):
        spec, *pairs = row.split()
        sizes = {pair[0]: int(pair[2:]) for pair in pairs}
        used = {letter: extent for letter, extent in sizes.items() if letter in spec}
        assert name == str(problem.spec) == spec
        assert problem.flops == 2 * prod(used.values())
        assert problem.sizes == used
        assert problem.dtype == "float64"


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_the_paper_s_figure(name):
    """Each layer has the flops of its sizes and stride, and reads stride*(h-1)+r rows."""
    table = rows(CONVOLUTIONS[name])
    found = suite(name)
    for row, (layer, problem) in zip(table, found.items(), strict=True):
        k, c, extent, window = map(int, re.findall(r"\d+", row.split(maxsplit=1)[1]))
        stride = 2 if row.split()[0].endswith("*") else 1
        out = extent // stride
        read = stride * (out - 1) + window
        assert layer == row.split()[0]
        assert problem.flops == 2 * k * c * out**2 * window**2
        assert problem.shapes == ((k, out, out), (c, read, read), (k, c, window, window))
        # "Same" padding is less than a window: the rows that the padded image adds or leaves out.
        assert abs(read - extent) < max(window, stride)
        assert problem.dtype == "float32"


def test_gemm_is_the_paper_s_table():
    """Each product has its M, N and K as the classes of that name."""
    found = suite("gemm")
    for row, (name, problem) in zip(rows(GEMM), found.items(), strict=True):
        workload, m, n, k = row.split()
        assert name == f"{workload}-{m}x{n}x{k}"
        assert problem.flops == 2 * int(m) * int(n) * int(k)
        extents = {c.name: problem.sizes[c.letters[0]] for c in problem.classes}
        assert extents == {"M": int(m), "N": int(n), "K": int(k)}


@pytest.mark.parametrize(("name", "count"), [("resnet50", 19), ("fastrcnn", 25), ("maskrcnn", 34)])
def test_networks_are_those_of_the_paper(name, count):
    """Each layer has a batch letter, the flops of its sizes, and reads no more than it has."""
    layers = []
    for row in rows(NETWORKS[name]):
        size, *others = row.split()
        layers += [(tuple(map(int, size.split("x"))), layer) for layer in others]
    found = suite(name)
    assert len(found) == len(layers) == count
    for (size, layer), (key, problem) in zip(layers, found.items(), strict=True):
        texts = re.fullmatch(r"(\d+)>(\d+),(\d+)(?:p(\d+))?(?:s(\d+))?", layer).groups()
        c, k, taps = map(int, texts[:3])
        zeros, stride = int(texts[3] or 0), int(texts[4] or 1)
        out = tuple((n + 2 * zeros - taps) // stride + 1 for n in size)
        image = tuple(stride * (n - 1) + taps for n in out)
        assert key.endswith("*") == (stride == 2)
        assert problem.flops == 2 * k * c * prod(out) * taps**2
        assert problem.shapes == ((1, k, *out), (1, c, *image), (k, c, taps, taps))
        assert all(0 <= n + 2 * zeros - used < stride for n, used in zip(size, image, strict=True))
        assert problem.sizes["n"] == 1
        assert problem.dtype == "float32"


def test_small_products_are_cut_ones_of_the_paper_s_table():
    """Each has at most 4.3 GFLOP, and sizes that divide those of the table but for what is cut."""
    found, whole = suite("gemm-small"), suite("gemm")
    assert len(found) == len(whole) == 8
    for problem, large in zip(found.values(), whole.values(), strict=True):
        assert problem.flops <= 2**32
        assert all(large.sizes[i] % extent == 0 for i, extent in problem.sizes.items())
        assert problem.spec == large.spec


@pytest.mark.parametrize("name", list_suites())
def test_every_suite_loads(name):
    """Each name that is listed is a suite of problems."""
    assert all(isinstance(problem, Problem) for problem in suite(name).values())
    assert suite(name)


def test_a_file_of_one_s_own(tmp_path):
    """A user's file gives its problems, with the file's spec and dtype where they have none."""
    path = tmp_path / "mine.toml"
    path.write_text(
        """
        format = 1
        spec = "ij,jk->ik"
        dtype = "complex64"
        problems = [
          { name = "small", sizes = "i=2 j=3 k=4" },
          { spec = "a-ab-b", sizes = { a = 5, b = 6 }, dtype = "float64" },
        ]
        """,
        encoding="utf-8",
    )
    expected = {
        "small": Problem.of("ik-ij-jk", "i=2 j=3 k=4", "complex64"),
        "a-ab-b": Problem.of("a-ab-b", "a=5 b=6"),
    }
    assert suite(path) == suite(str(path)) == expected
    assert list(suite(path)) == list(expected)


PROBLEM = '{ spec = "a-ab-b", sizes = "a=2 b=3" }'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format = ", "cannot read the suite"),
        (f"problems = [{PROBLEM}]", "format is None, this version reads 1"),
        (f"format = 2\nproblems = [{PROBLEM}]", "format is 2, this version reads 1"),
        ("format = 1", "'problems' must be a list of tables, got None"),
        ("format = 1\nproblems = []", "'problems' must be a list of tables, got []"),
        ("format = 1\n[problems]\na = 1", "'problems' must be a list of tables"),
        ("format = 1\nproblems = [5]", "problem 1: expected a table, got 5"),
        (f"format = 1\nproblem = [{PROBLEM}]", "unknown key 'problem'; known are dtype, format,"),
        ('format = 1\nproblems = [{ spec = "a-a", size = 3 }]', "problem 1: unknown key 'size'"),
        ('format = 1\nproblems = [{ name = "x", sizes = "a=1" }]', "problem 1: it needs a spec"),
        ('format = 1\nproblems = [{ spec = 5, sizes = "a=1" }]', "a name that is text, got 5"),
        ('format = 1\nproblems = [{ spec = "a-a" }]', "('a-a'): 'sizes' must be a table or text"),
        (f"format = 1\nproblems = [{PROBLEM}, {PROBLEM}]", "problem 2 ('a-ab-b'): an earlier"),
        (
            'format = 1\nproblems = [{ name = "x", spec = "a-a", sizes = { b = 1 } }]',
            "problem 1 ('x'): a size is given for 'b', which 'a-a' does not have",
        ),
        (
            'format = 1\nproblems = [{ spec = "a!", sizes = { a = 1 } }]',
            "problem 1 ('a!'): unexpected '!' at character 2",
        ),
        (
            'format = 1\nproblems = [{ spec = "a-a", sizes = { a = 1 }, dtype = "int8" }]',
            "problem 1 ('a-a'): tilesolve computes in",
        ),
        ("format = 1\nproblems = " + "[" * 100_000, "cannot read the suite"),
    ],
)
def test_a_damaged_file_is_explained(tmp_path, text, message):
    """Each fault of a file is an error that names the file and the problem in it."""
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SuiteError, match=re.escape(message)) as caught:
        suite(path)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    """A missing file, a folder and text that is not UTF-8 are suite errors too."""
    broken = tmp_path / "broken.toml"
    broken.write_bytes(b"format = 1 # \xff")
    for path in (tmp_path / "none.toml", tmp_path, broken):
        with pytest.raises(SuiteError, match="cannot read the suite"):
            suite(path)


def test_an_unknown_name_lists_the_known_ones():
    """A name that is no suite shows those that are."""
    with pytest.raises(SuiteError, match="no suite 'tcg'; there are tccg, yolo9000, resnet18, gem"):
        suite("tcg")
