"""Pipelines of images that tests decide about: blur, Harris corners, unsharp masks, stencil chains.

They are written from their descriptions, at any size.
"""

from tilesolve.contractions.statements.computation import bind_stages
from tilesolve.contractions.statements.parse import parse_stages

GREY = "gray[a,b] = .299*I[0,a,b] + .587*I[1,a,b] + .114*I[2,a,b]"


def make(lines, sizes, dtype="float32"):
    """A computation of lines; sizes are by letters that may stand together."""
    extents = {x: extent for letters, extent in sizes.items() for x in letters.split()}
    return bind_stages(parse_stages("\n".join(lines)), extents, dtype)


def blur(height=4800, width=6400, dtype="float32"):
    """Means of three columns, then of three rows."""
    lines = [
        "bx[y,x] = (I[y,x] + I[y,x+1] + I[y,x+2]) / 3",
        "by[u,v] = (bx[u,v] + bx[u+1,v] + bx[u+2,v]) / 3",
    ]
    return make(lines, {"y": height + 2, "x v": width, "u": height}, dtype)


def harris(height=1024, width=1920):
    """Corners of an image of three colours, in 13 stages."""
    lines = [
        GREY,
        "iy[c,d] = (gray[c+2,d] + 2*gray[c+2,d+1] + gray[c+2,d+2]"
        " - gray[c,d] - 2*gray[c,d+1] - gray[c,d+2]) / 12",
        "ix[e,f] = (gray[e,f+2] + 2*gray[e+1,f+2] + gray[e+2,f+2]"
        " - gray[e,f] - 2*gray[e+1,f] - gray[e+2,f]) / 12",
        "ixx[g,h] = ix[g,h] * ix[g,h]",
        "iyy[k,l] = iy[k,l] * iy[k,l]",
        "ixy[m,n] = ix[m,n] * iy[m,n]",
    ]
    for name, letters in (("xx", "o,p"), ("yy", "q,r"), ("xy", "s,t")):
        row, column = letters.split(",")
        box = [f"i{name}[{row}+{i},{column}+{j}]" for i in range(3) for j in range(3)]
        lines.append(f"s{name}[{letters}] = {' + '.join(box)}")
    lines += [
        "det[u,v] = sxx[u,v] * syy[u,v] - sxy[u,v] * sxy[u,v]",
        "trace[w,z] = sxx[w,z] + syy[w,z]",
        "corner[A,B] = det[A,B] - .04 * trace[A,B] * trace[A,B]",
        "out[y,x] = corner[y,x]",
    ]
    sizes = {
        "a": height + 4,
        "b": width + 4,
        "c e g k m": height + 2,
        "d f h l n": width + 2,
        "o q s u w A y": height,
        "p r t v z B x": width,
    }
    return make(lines, sizes)


def unsharp(height=2554, width=1530):
    """An image of three colours made sharper by what a blur of it lacks."""
    weights = [0.4, 0.25, 0.04, 0.01]
    down = [f"{weights[abs(t)]}*gray[c+{t + 3},d]" for t in range(-3, 4)]
    along = [f"{weights[abs(t)]}*down[e,f+{t + 3}]" for t in range(-3, 4)]
    lines = [
        GREY,
        f"down[c,d] = {' + '.join(down)}",
        f"along[e,f] = {' + '.join(along)}",
        "sharp[g,h] = 2*gray[g+3,h+3] - along[g,h]",
        "ratio[k,l] = sharp[k,l] / gray[k+3,l+3]",
        "out[z,y,x] = ratio[y,x] * I[z,y+3,x+3]",
    ]
    sizes = {
        "a": height + 6,
        "b d": width + 6,
        "c e g k y": height,
        "f h l x": width,
        "z": 3,
    }
    return make(lines, sizes)


def chain(count=32, height=1536, width=2560):
    """Weighted sums of 5 x 5 neighbours of 16 bits, one after another."""
    lines, sizes = [], {}
    for at in range(count):
        before = f"s{at - 1}" if at else "I"
        box = [
            f"{(i + 1) * (j + 1)} * {before}[y{at}+{i},x{at}+{j}]"
            for i in range(5)
            for j in range(5)
        ]
        lines.append(f"s{at}[y{at},x{at}] = {' + '.join(box)}")
        sizes[f"y{at}"] = height + 4 * (count - 1 - at)
        sizes[f"x{at}"] = width + 4 * (count - 1 - at)
    return make(lines, sizes, "uint16")
