"""What tilings move through each level: what `tilesolve.model.traffic` counts, for arrays as such.

`f` are its fields (`traffic_fields`). Each tiling has its turn; the order of operations is that of
`traffic`, so that sums are the same to the last bit.
"""

from __future__ import annotations

from tilesolve.kernels.codegen.scalars import REALS
from tilesolve.kernels.ir.intrinsics import intrinsic
from tilesolve.kernels.runtime import traffic_fields as fields
from tilesolve.kernels.runtime.compiled import (
    INT,
    POINTER,
    REAL,
    as_pointer,
    as_real,
    compiled,
    inlined,
)
from tilesolve.packing.sizes import WORD_BYTES


@intrinsic
def as_reals(builder, address):
    """Return an address as a pointer to doubles."""
    return builder.inttoptr(address, REALS)


@intrinsic
def as_int(builder, value):
    """Return a double without what is behind its point."""
    return builder.fptosi(value, INT)


@inlined
def _ints(f, field):
    """Return an array of integers."""
    return as_pointer(f[field])


@inlined
def _reals(f, field):
    """Return an array of doubles."""
    return as_reals(f[field])


@compiled(INT, INT, returns=INT, inner=True)
def _common(one, other):
    """Return the greatest common divisor."""
    if one & (one - 1) == 0 and one != 0:  # a power of two, as lines have
        lowest = other & (0 - other)
        return lowest if lowest != 0 and lowest < one else one
    while other != 0:
        rest = one % other
        one = other
        other = rest
    return one


@compiled(POINTER, INT, INT, inner=True)
def _count_chain(f, first, steps):
    """Count the tiles of one chain of steps, and find what they begin at multiples of."""
    sizes = _ints(f, fields.SIZES)
    counts = _ints(f, fields.COUNTS)
    corners = _ints(f, fields.CORNERS)
    lengths, times = _ints(f, fields.LENGTHS), _ints(f, fields.TIMES)
    last, parts, common = first + steps - 1, 1, 0
    extent = sizes[last]
    lengths[0] = extent
    times[0] = 1
    counts[last] = 1
    corners[last] = 0
    for back in range(1, steps):
        at = last - back
        size, whole, tiles = sizes[at], 0, 0
        # Each part is cut into whole tiles, and what remains.
        for number in range(parts):
            part = parts - 1 - number
            whole += times[part] * (lengths[part] // size)
            lengths[part + 1] = lengths[part] % size
            times[part + 1] = times[part]
        lengths[0] = size
        times[0] = whole
        parts += 1
        for part in range(parts):
            if lengths[part] > 0:
                tiles += times[part]
        counts[at] = tiles
        if size < extent:
            common = _common(common, size)
        corners[at] = common
    counts[first] = extent
    corners[first] = 1


@compiled(POINTER, inner=True)
def _keep_loops(f):
    """Find the loops that run in some tiling."""
    chains = _ints(f, fields.CHAINS)
    offsets = _ints(f, fields.OFFSETS)
    counts = _ints(f, fields.COUNTS)
    letters, steps = _ints(f, fields.LOOP_LETTER), _ints(f, fields.LOOP_STEP)
    sides = _ints(f, fields.LOOP_SIDE)
    kept_letter, kept_step = _ints(f, fields.KEPT_LETTER), _ints(f, fields.KEPT_STEP)
    kept, depth, found = _ints(f, fields.KEPT_COUNT), f[fields.DEPTH], 0
    kept[0] = 0
    f[fields.SIDES] = 0
    for loop in range(f[fields.LOOPS]):
        letter, step, runs = letters[loop], steps[loop], 0
        for chain in range(chains[letter]):
            at = offsets[letter] + chain * depth + step
            if counts[at - 1] > counts[at]:
                runs = 1
        if runs:
            f[fields.SIDES] += sides[loop]
            found += 1
            kept_letter[found] = letter
            kept_step[found] = step
        kept[loop + 1] = found


@compiled(POINTER, INT, INT, REALS, returns=REAL, inner=True)
def _touch_windows(f, form, line, box):
    """Return what `_touch` does where axes are sums of letters: see `Access.scattered`."""
    first, count = form * f[fields.LETTERS], _ints(f, fields.FORM_AXES)[form]
    letters, extents = _ints(f, fields.AXIS_LETTER), _ints(f, fields.AXIS_EXTENT)
    pitches, factors = _ints(f, fields.AXIS_PITCH), _ints(f, fields.AXIS_STEP)
    ends, grid = _ints(f, fields.AXIS_ENDS), _ints(f, fields.GRID)
    reaches, sides = _reals(f, fields.REACHES), _reals(f, fields.POSITIONS)
    element, whole = _ints(f, fields.FORM_ELEMENT)[form], _reals(f, fields.FORM_BYTES)[form]
    elements, around, positions, far = as_real(element), 1.0, 1.0, 0.0
    for number in range(count):
        side = box[letters[first + number]]
        positions = positions * side
        far = far + as_real(factors[first + number]) * (side - 1.0)
        if ends[first + number]:
            reach = 1.0 + far
            touched = positions if positions < reach else reach
            reaches[number] = reach
            sides[number] = touched
            elements = elements * touched
            around = around * reach
            positions = 1.0
            far = 0.0
    if line == 0:
        return as_real(element) * around
    if line <= element:
        return whole if whole < elements else elements
    run, held, contiguous, grows, corner = as_real(element), 1.0, 1, 1, line
    axis = count - 1
    for back in range(count):
        number = count - 1 - back
        at = first + number
        if ends[at]:
            axis = number
            # Within a row lines have no gaps; rows that are left out are gaps.
            grows = 1 if back == 0 or (contiguous and sides[axis] >= reaches[axis]) else 0
        corner = _common(corner, pitches[at] * grid[letters[at]] if grows else pitches[at])
        if number == 0 or ends[at - 1]:
            contiguous = 0
            if grows:
                run = run * reaches[axis]
                held = held * sides[axis]
                contiguous = 1 if reaches[axis] >= as_real(extents[at]) else 0
    if _ints(f, fields.FORM_WINDOWS)[form] == 2:
        parts = run / as_real(corner)
        wholes = as_int(parts)
        wholes = wholes + 1 if as_real(wholes) < parts else wholes
        run = as_real(wholes) * as_real(corner)
    lines = run if contiguous else run + as_real(line - corner)
    most_lines = held * as_real(line)
    lines = most_lines if most_lines < lines else lines
    found = elements / (as_real(element) * held) * lines
    return whole if whole < found else found


@compiled(POINTER, INT, INT, REALS, returns=REAL, inner=True)
def _touch(f, form, line, box):
    """Return the bytes of a form that a box touches, in whole lines."""
    if _ints(f, fields.FORM_WINDOWS)[form]:
        return _touch_windows(f, form, line, box)
    most, count = f[fields.LETTERS], _ints(f, fields.FORM_AXES)[form]
    letters, extents = _ints(f, fields.AXIS_LETTER), _ints(f, fields.AXIS_EXTENT)
    pitches, grid, first = _ints(f, fields.AXIS_PITCH), _ints(f, fields.GRID), form * most
    element = _ints(f, fields.FORM_ELEMENT)[form]
    elements = as_real(element)
    for back in range(count):
        elements = elements * box[letters[first + count - 1 - back]]
    if line <= element:
        return elements
    run, corner, contiguous, at = as_real(element), line, 1, first
    while at < first + count:
        if not contiguous:
            corner = _common(corner, pitches[at])
            at = first + count
        else:
            letter = letters[at]
            corner = _common(corner, pitches[at] * grid[letter])
            run = run * box[letter]
            if not box[letter] >= as_real(extents[at]):
                contiguous = 0
            at += 1
    touched = run if contiguous else run + as_real(line - corner)
    most_lines = run * (as_real(line) / as_real(element))
    if most_lines < touched:
        touched = most_lines
    found, whole = elements / run * touched, _reals(f, fields.FORM_BYTES)[form]
    return whole if whole < found else found


@compiled(POINTER, INT, INT, inner=True)
def _find_footprints(f, loops, changed):
    """Find what all that is asked for touches after each loop of one tiling.

    Forms have what they had in the tiling before, but for those of letters whose chains differ.
    """
    letters, steps = _ints(f, fields.KEPT_LETTER), _ints(f, fields.KEPT_STEP)
    first, sizes, counts = _ints(f, fields.FIRST), _ints(f, fields.SIZES), _ints(f, fields.COUNTS)
    corners, ends, trips = _ints(f, fields.CORNERS), _ints(f, fields.STEPS), _reals(f, fields.TRIPS)
    grid, box, masks = _ints(f, fields.GRID), _reals(f, fields.BOX), _ints(f, fields.FORM_LETTERS)
    forms, lines = _ints(f, fields.FOOTPRINT_FORM), _ints(f, fields.FOOTPRINT_LINE)
    largest, widths = _ints(f, fields.FOOTPRINT_LARGEST), _reals(f, fields.FOOTPRINT_WIDTH)
    for at in range(1, loops + 1):
        here = first[letters[at]] + steps[at]
        trips[at] = 0.0
        if counts[here - 1] > counts[here]:
            trips[at] = as_real(counts[here - 1]) / as_real(counts[here])
    for number in range(f[fields.FOOTPRINTS]):
        form, touched = forms[number], _reals(f, fields.TOUCHED)
        place = number * (loops + 1)
        if changed < 0 or masks[form] & changed:
            for letter in range(f[fields.LETTERS]):
                grid[letter] = 1
                box[letter] = 1.0
            touched[place] = _touch(f, form, lines[number], box) * widths[number]
            for at in range(1, loops + 1):
                letter = letters[at]
                if trips[at] > 0.0 and (masks[form] >> letter) & 1:
                    here, extent = (
                        first[letter] + steps[at],
                        sizes[first[letter] + ends[letter] - 1],
                    )
                    grid[letter] = corners[here]
                    if largest[number]:
                        box[letter] = as_real(sizes[here])
                    else:
                        box[letter] = as_real(extent) / as_real(counts[here])
                    touched[place + at] = _touch(f, form, lines[number], box) * widths[number]
                else:
                    touched[place + at] = touched[place + at - 1]


@compiled(POINTER, INT, INT, INT, returns=INT, inner=True)
def _fits(f, place, at, loops):
    """Return whether a place has room for what comes between two uses of what inner loops touch.

    Outside of calls these are no fewer than a call has. See `tilesolve.model.residency.Between`.
    """
    tensors, masks, last = f[fields.TENSORS], _ints(f, fields.FORM_LETTERS), _ints(f, fields.LAST)
    accessed, copied = _ints(f, fields.ACCESSED), _ints(f, fields.COPIED)
    held, source = _ints(f, fields.HELD_FOOTPRINT), _ints(f, fields.SOURCE_FOOTPRINT)
    kept, used = _ints(f, fields.KEPT_COUNT), _ints(f, fields.COPY_LOOPS)
    touched, total = _reals(f, fields.TOUCHED), 0.0
    letter = _ints(f, fields.KEPT_LETTER)[at] if at else 0
    for t in range(tensors):
        own = held[place * tensors + t] * (loops + 1)
        still = 1 if at == 0 else 1 - ((masks[accessed[t]] >> letter) & 1)
        again = still and last[t] > at
        if copied[t] == 1:
            inside, far = kept[used[t]], source[place * tensors + t] * (loops + 1)
            if at > inside:
                swept = touched[far + at]
                total = total + (touched[own + inside] + (swept + swept if again else swept))
            elif last[t] > inside:
                total = total + (touched[own + inside] + touched[far + inside])
            else:
                total = total + (
                    touched[own + at] + touched[own + at] if again else touched[own + at]
                )
        else:
            total = total + (touched[own + at] + touched[own + at] if again else touched[own + at])
    return 1 if total <= _reals(f, fields.CAPACITY)[place] else 0


@compiled(POINTER, INT, INT, INT, INT, returns=INT, inner=True)
def _passes(f, tensor, inner, outer, loops):
    """Return whether registers have what inner loops touch when the outer one comes round."""
    if outer >= _ints(f, fields.KEPT_COUNT)[f[fields.HELD]]:
        return 0
    if tensor and outer >= f[fields.SIDES]:
        return 0
    output = _ints(f, fields.HELD_FOOTPRINT)[0] * (loops + 1)
    return 1 if _reals(f, fields.TOUCHED)[output + inner] <= _reals(f, fields.CAPACITY)[0] else 0


@compiled(POINTER, INT, INT, inner=True)
def _walk(f, place, loops):
    """Find what comes into a place over the loops of one tiling."""
    tensors, masks = f[fields.TENSORS], _ints(f, fields.FORM_LETTERS)
    letters, trips = _ints(f, fields.KEPT_LETTER), _reals(f, fields.TRIPS)
    accessed, touched = _ints(f, fields.ACCESSED), _reals(f, fields.TOUCHED)
    read = as_pointer(f[fields.READ_FORM] + WORD_BYTES * place * tensors)
    mean = as_pointer(f[fields.MEAN_FOOTPRINT] + WORD_BYTES * place * tensors)
    call = _ints(f, fields.KEPT_COUNT)[f[fields.CALL]]
    came, own, last, inside = _reals(f, fields.CAME), _ints(f, fields.OWN), _ints(f, fields.LAST), 0
    for t in range(tensors):
        came[t] = touched[mean[t] * (loops + 1)]
        own[t] = 0
        last[t] = 0
    for at in range(1, loops + 1):
        if trips[at] > 0.0:
            letter, stays, known = letters[at], 0, -1
            for t in range(tensors):
                if (masks[accessed[t]] >> letter) & 1:
                    last[t] = at
            for t in range(tensors):
                moved = (masks[read[t]] >> letter) & 1
                inner = inside if moved else own[t]
                if not place:
                    stays = _passes(f, t, inner, at - 1, loops)
                else:
                    if at > call and inner < call:
                        inner = call
                    if inner != known:
                        stays = _fits(f, place, inner, loops)
                        known = inner
                if not stays:
                    came[t] = came[t] * trips[at]
                elif moved:
                    came[t] = touched[mean[t] * (loops + 1) + at]
                if moved:
                    own[t] = at
            inside = at


@compiled(POINTER, INT, INT, inner=True)
def _count_copies(f, loops, tiling):
    """Find the elements of each tensor that are copied, repetitions counted."""
    letters = _ints(f, fields.KEPT_LETTER)
    trips = _reals(f, fields.TRIPS)
    kept = _ints(f, fields.KEPT_COUNT)
    copied, used = _ints(f, fields.COPIED), _ints(f, fields.COPY_LOOPS)
    copies, forms = _ints(f, fields.COPY_FOOTPRINT), _ints(f, fields.FOOTPRINT_FORM)
    masks, elements = _ints(f, fields.FORM_LETTERS), _ints(f, fields.FORM_ELEMENT)
    for t in range(f[fields.TENSORS]):
        amount, moved = 0.0, 0
        if copied[t] == 1:
            form, inside = forms[copies[t]], kept[used[t]]
            amount = _reals(f, fields.TOUCHED)[copies[t] * (loops + 1) + inside]
            amount = amount / as_real(elements[form])
            for at in range(inside + 1, loops + 1):
                if trips[at] > 0.0:
                    if (masks[form] >> letters[at]) & 1:
                        moved = 1
                    if moved:
                        amount = amount * trips[at]
        _reals(f, fields.PACKED)[t * f[fields.TILINGS] + tiling] = amount


@compiled(POINTER, INT, INT, INT, inner=True)
def _add_copies(f, place, loops, tiling):
    """Add to what comes into a place what copies of packed operands cause there."""
    tensors, count = f[fields.TENSORS], f[fields.TILINGS]
    copied = _ints(f, fields.COPIED)
    levels = _ints(f, fields.COPY_LEVEL)
    used = _ints(f, fields.COPY_LOOPS)
    held, source = _ints(f, fields.HELD_FOOTPRINT), _ints(f, fields.SOURCE_FOOTPRINT)
    touched = _reals(f, fields.TOUCHED)
    came = _reals(f, fields.CAME)
    kept = _ints(f, fields.KEPT_COUNT)
    room = _reals(f, fields.CAPACITY)[place]
    forms, copies = _ints(f, fields.FOOTPRINT_FORM), _ints(f, fields.COPY_FOOTPRINT)
    for t in range(tensors):
        extra = 0.0
        if copied[t] == 1 and place <= levels[t]:
            element = _ints(f, fields.FORM_ELEMENT)[forms[copies[t]]]
            size = _reals(f, fields.PACKED)[t * count + tiling] * as_real(element)
            inside, wide = kept[used[t]], _reals(f, fields.COPY_WIDTH)[t]
            far = touched[source[place * tensors + t] * (loops + 1) + inside] if place else 0.0
            if place == levels[t]:
                own = touched[held[place * tensors + t] * (loops + 1) + inside]
                if not own + far <= room:
                    came[t] = came[t] + size
            else:
                crossings, whole = 2.0, 0.0
                if place:
                    crossings = _reals(f, fields.OPTIONS)[fields.PACK_CROSSINGS]
                crossings = 1.0 + wide * (crossings - 1.0)
                for other in range(tensors):
                    whole = whole + touched[held[place * tensors + other] * (loops + 1) + inside]
                if place and whole + far <= room:
                    came[t] = came[t] - size
                    if came[t] < 0.0:
                        came[t] = 0.0
                    crossings = 1.0
                extra = crossings * (size / wide)
        _reals(f, fields.PACKING)[(place * tensors + t) * count + tiling] = extra


@compiled(POINTER, INT, INT, INT, inner=True)
def _count_place(f, place, loops, tiling):
    """Find what one tiling moves into one place, and both ways."""
    tensors, count, came = f[fields.TENSORS], f[fields.TILINGS], _reals(f, fields.CAME)
    output = _ints(f, fields.OUTPUT_FOOTPRINT)[place] * (loops + 1) + loops
    whole, width = _reals(f, fields.TOUCHED)[output], _reals(f, fields.OPTIONS)[fields.OUTPUT_WIDTH]
    _walk(f, place, loops)
    _add_copies(f, place, loops, tiling)
    passes = _reals(f, fields.OPTIONS)[fields.WHOLE_SUM_PASSES]
    if place and width > 1.0 and came[0] < passes * whole:
        came[0] = came[0] / width
        whole = whole / width
    if not (f[fields.UNREAD] == 2 or (f[fields.UNREAD] == 1 and place == 0)):
        whole = 0.0
    for t in range(tensors):
        at = (place * tensors + t) * count + tiling
        both = came[t] if t else 2.0 * came[0] - whole
        _reals(f, fields.MOVED)[at] = came[t]
        _reals(f, fields.VOLUMES)[at] = both + _reals(f, fields.PACKING)[at]


@compiled(INT)
def count_tilings(address):
    """Find what tilings move, given the address of the fields."""
    f = as_pointer(address)
    chains = _ints(f, fields.CHAINS)
    offsets = _ints(f, fields.OFFSETS)
    steps = _ints(f, fields.STEPS)
    numbers, first, count = _ints(f, fields.NUMBERS), _ints(f, fields.FIRST), f[fields.TILINGS]
    for letter in range(f[fields.LETTERS]):
        for chain in range(chains[letter]):
            _count_chain(f, offsets[letter] + chain * f[fields.DEPTH], steps[letter])
    _keep_loops(f)
    loops = _ints(f, fields.KEPT_COUNT)[f[fields.LOOPS]]
    for tiling in range(count):
        calls, changed = 1.0, 0 if tiling else -1
        for letter in range(f[fields.LETTERS]):
            at = offsets[letter] + numbers[letter * count + tiling] * f[fields.DEPTH]
            if tiling and first[letter] != at:
                changed += 1 << letter
            first[letter] = at
            calls = calls * as_real(_ints(f, fields.COUNTS)[at + 1])
        _reals(f, fields.CALLS)[tiling] = calls
        _find_footprints(f, loops, changed)
        _count_copies(f, loops, tiling)
        for place in range(f[fields.PLACES]):
            _count_place(f, place, loops, tiling)
