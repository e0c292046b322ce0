"""What tilings move through each level: what `tilesolve.model.traffic` counts, for arrays as such.

`f` are its fields (`traffic_fields`). Each tiling has its turn; the order of operations is that of
`traffic`, so that sums are the same to the last bit.
"""

from __future__ import annotations

from math import inf

from tilesolve.kernels.runtime import traffic_fields as fields
from tilesolve.kernels.runtime.compiled import INT, POINTER, REAL, as_pointer, as_real, compiled
from tilesolve.kernels.runtime.touched_bytes import find_common, ints, reals, touch
from tilesolve.packing.sizes import WORD_BYTES


@compiled(POINTER, INT, INT, inner=True)
def _count_chain(f, first, steps):
    """Count the tiles of one chain of steps, and find what they begin at multiples of."""
    sizes = ints(f, fields.SIZES)
    counts = ints(f, fields.COUNTS)
    corners = ints(f, fields.CORNERS)
    lengths, times = ints(f, fields.LENGTHS), ints(f, fields.TIMES)
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
            common = find_common(common, size)
        corners[at] = common
    counts[first] = extent
    corners[first] = 1


@compiled(POINTER, inner=True)
def _keep_loops(f):
    """Find the loops that run in some tiling."""
    chains = ints(f, fields.CHAINS)
    offsets = ints(f, fields.OFFSETS)
    counts = ints(f, fields.COUNTS)
    letters, steps = ints(f, fields.LOOP_LETTER), ints(f, fields.LOOP_STEP)
    sides = ints(f, fields.LOOP_SIDE)
    kept_letter, kept_step = ints(f, fields.KEPT_LETTER), ints(f, fields.KEPT_STEP)
    kept, depth, found = ints(f, fields.KEPT_COUNT), f[fields.DEPTH], 0
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


@compiled(POINTER, INT, INT, inner=True)
def _find_trips(f, loops, changed):
    """Find the trips of one tiling's loops that run, 0 for others, where letters have changed."""
    letters, steps = ints(f, fields.KEPT_LETTER), ints(f, fields.KEPT_STEP)
    first, counts, trips = ints(f, fields.FIRST), ints(f, fields.COUNTS), reals(f, fields.TRIPS)
    for at in range(1, loops + 1):
        if (changed >> letters[at]) & 1:
            here = first[letters[at]] + steps[at]
            trips[at] = 0.0
            if counts[here - 1] > counts[here]:
                trips[at] = as_real(counts[here - 1]) / as_real(counts[here])


@compiled(POINTER, INT, INT, INT, INT, inner=True)
def _find_footprints(f, loops, changed, begin, end):
    """Find what some of all that is asked for touches after each loop of one tiling.

    Forms have what they had before, but for those of letters whose chains differ since.
    """
    letters, steps = ints(f, fields.KEPT_LETTER), ints(f, fields.KEPT_STEP)
    first, sizes, counts = ints(f, fields.FIRST), ints(f, fields.SIZES), ints(f, fields.COUNTS)
    corners, ends, trips = ints(f, fields.CORNERS), ints(f, fields.STEPS), reals(f, fields.TRIPS)
    grid, box, masks = ints(f, fields.GRID), reals(f, fields.BOX), ints(f, fields.FORM_LETTERS)
    forms, lines = ints(f, fields.FOOTPRINT_FORM), ints(f, fields.FOOTPRINT_LINE)
    largest, widths = ints(f, fields.FOOTPRINT_LARGEST), reals(f, fields.FOOTPRINT_WIDTH)
    for number in range(begin, end):
        form, touched = forms[number], reals(f, fields.TOUCHED)
        place = number * (loops + 1)
        if changed < 0 or masks[form] & changed:
            for letter in range(f[fields.LETTERS]):
                grid[letter] = 1
                box[letter] = 1.0
            touched[place] = touch(f, form, lines[number], box) * widths[number]
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
                    touched[place + at] = touch(f, form, lines[number], box) * widths[number]
                else:
                    touched[place + at] = touched[place + at - 1]


@compiled(POINTER, INT, INT, INT, returns=INT, inner=True)
def _fits(f, place, at, loops):
    """Return whether a place has room for what comes between two uses of what inner loops touch.

    Outside of calls these are no fewer than a call has. See `tilesolve.model.residency.Between`.
    """
    tensors, masks, last = f[fields.TENSORS], ints(f, fields.FORM_LETTERS), ints(f, fields.LAST)
    accessed, copied = ints(f, fields.ACCESSED), ints(f, fields.COPIED)
    held, source = ints(f, fields.HELD_FOOTPRINT), ints(f, fields.SOURCE_FOOTPRINT)
    kept, used = ints(f, fields.KEPT_COUNT), ints(f, fields.COPY_LOOPS)
    touched, total = reals(f, fields.TOUCHED), 0.0
    letter = ints(f, fields.KEPT_LETTER)[at] if at else 0
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
    return 1 if total <= reals(f, fields.CAPACITY)[place] else 0


@compiled(POINTER, INT, INT, INT, INT, returns=INT, inner=True)
def _passes(f, tensor, inner, outer, loops):
    """Return whether registers have what inner loops touch when the outer one comes round."""
    if outer >= ints(f, fields.KEPT_COUNT)[f[fields.HELD]]:
        return 0
    if tensor and outer >= f[fields.SIDES]:
        return 0
    output = ints(f, fields.HELD_FOOTPRINT)[0] * (loops + 1)
    return 1 if reals(f, fields.TOUCHED)[output + inner] <= reals(f, fields.CAPACITY)[0] else 0


@compiled(POINTER, INT, INT, inner=True)
def _walk(f, place, loops):
    """Find what comes into a place over the loops of one tiling."""
    tensors, masks = f[fields.TENSORS], ints(f, fields.FORM_LETTERS)
    letters, trips = ints(f, fields.KEPT_LETTER), reals(f, fields.TRIPS)
    accessed, touched = ints(f, fields.ACCESSED), reals(f, fields.TOUCHED)
    read = as_pointer(f[fields.READ_FORM] + WORD_BYTES * place * tensors)
    mean = as_pointer(f[fields.MEAN_FOOTPRINT] + WORD_BYTES * place * tensors)
    call = ints(f, fields.KEPT_COUNT)[f[fields.CALL]]
    came, own, last, inside = reals(f, fields.CAME), ints(f, fields.OWN), ints(f, fields.LAST), 0
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
    letters = ints(f, fields.KEPT_LETTER)
    trips = reals(f, fields.TRIPS)
    kept = ints(f, fields.KEPT_COUNT)
    copied, used = ints(f, fields.COPIED), ints(f, fields.COPY_LOOPS)
    copies, forms = ints(f, fields.COPY_FOOTPRINT), ints(f, fields.FOOTPRINT_FORM)
    masks, elements = ints(f, fields.FORM_LETTERS), ints(f, fields.FORM_ELEMENT)
    for t in range(f[fields.TENSORS]):
        amount, moved = 0.0, 0
        if copied[t] == 1:
            form, inside = forms[copies[t]], kept[used[t]]
            amount = reals(f, fields.TOUCHED)[copies[t] * (loops + 1) + inside]
            amount = amount / as_real(elements[form])
            for at in range(inside + 1, loops + 1):
                if trips[at] > 0.0:
                    if (masks[form] >> letters[at]) & 1:
                        moved = 1
                    if moved:
                        amount = amount * trips[at]
        reals(f, fields.PACKED)[t * f[fields.TILINGS] + tiling] = amount


@compiled(POINTER, INT, INT, INT, inner=True)
def _add_copies(f, place, loops, tiling):
    """Add to what comes into a place what copies of packed operands cause there."""
    tensors, count = f[fields.TENSORS], f[fields.TILINGS]
    copied = ints(f, fields.COPIED)
    levels = ints(f, fields.COPY_LEVEL)
    used = ints(f, fields.COPY_LOOPS)
    held, source = ints(f, fields.HELD_FOOTPRINT), ints(f, fields.SOURCE_FOOTPRINT)
    touched = reals(f, fields.TOUCHED)
    came = reals(f, fields.CAME)
    kept = ints(f, fields.KEPT_COUNT)
    room = reals(f, fields.CAPACITY)[place]
    forms, copies = ints(f, fields.FOOTPRINT_FORM), ints(f, fields.COPY_FOOTPRINT)
    for t in range(tensors):
        extra = 0.0
        if copied[t] == 1 and place <= levels[t]:
            element = ints(f, fields.FORM_ELEMENT)[forms[copies[t]]]
            size = reals(f, fields.PACKED)[t * count + tiling] * as_real(element)
            inside, wide = kept[used[t]], reals(f, fields.COPY_WIDTH)[t]
            far = touched[source[place * tensors + t] * (loops + 1) + inside] if place else 0.0
            if place == levels[t]:
                own = touched[held[place * tensors + t] * (loops + 1) + inside]
                if not own + far <= room:
                    came[t] = came[t] + size
            else:
                crossings, whole = 2.0, 0.0
                if place:
                    crossings = reals(f, fields.OPTIONS)[fields.PACK_CROSSINGS]
                crossings = 1.0 + wide * (crossings - 1.0)
                for other in range(tensors):
                    whole = whole + touched[held[place * tensors + other] * (loops + 1) + inside]
                if place and whole + far <= room:
                    came[t] = came[t] - size
                    if came[t] < 0.0:
                        came[t] = 0.0
                    crossings = 1.0
                extra = crossings * (size / wide)
        reals(f, fields.PACKING)[(place * tensors + t) * count + tiling] = extra


@compiled(POINTER, INT, INT, INT, inner=True)
def _count_place(f, place, loops, tiling):
    """Find what one tiling moves into one place, and both ways."""
    tensors, count, came = f[fields.TENSORS], f[fields.TILINGS], reals(f, fields.CAME)
    output = ints(f, fields.OUTPUT_FOOTPRINT)[place] * (loops + 1) + loops
    whole, width = reals(f, fields.TOUCHED)[output], reals(f, fields.OPTIONS)[fields.OUTPUT_WIDTH]
    _walk(f, place, loops)
    _add_copies(f, place, loops, tiling)
    passes = reals(f, fields.OPTIONS)[fields.WHOLE_SUM_PASSES]
    if place and width > 1.0 and came[0] < passes * whole:
        came[0] = came[0] / width
        whole = whole / width
    if not (f[fields.UNREAD] == 2 or (f[fields.UNREAD] == 1 and place == 0)):
        whole = 0.0
    for t in range(tensors):
        at = (place * tensors + t) * count + tiling
        both = came[t] if t else 2.0 * came[0] - whole
        reals(f, fields.MOVED)[at] = came[t]
        reals(f, fields.VOLUMES)[at] = both + reals(f, fields.PACKING)[at]


@compiled(POINTER, INT, INT, INT, REAL, INT, returns=INT, inner=True)
def _count_places(f, loops, tiling, changed, calls, copies):
    """Count what one tiling moves, place by place; return whether its score is within limits.

    What copies touch, the first footprints, is known; letters have changed since others were found.
    """
    tensors, count, limits = f[fields.TENSORS], f[fields.TILINGS], reals(f, fields.LIMITS)
    share, places, first = limits[fields.OVERLAP], f[fields.PLACES], fields.FIRST_SECONDS
    longest = limits[fields.WORK_SECONDS] + calls * limits[fields.CALL_SECONDS]
    for t in range(tensors):
        longest += reals(f, fields.PACKED)[t * count + tiling] * limits[first + t]
    total, within, place = longest, 1, 0
    if longest > limits[fields.MOST_SCORE]:
        return 0
    _find_footprints(f, loops, changed, copies, f[fields.FOOTPRINTS])
    while within and place < places:
        _count_place(f, place, loops, tiling)
        seconds = 0.0
        for t in range(tensors):
            volume = reals(f, fields.VOLUMES)[(place * tensors + t) * count + tiling]
            seconds += volume * limits[first + tensors + 2 * place + (1 if t else 0)]
        total += seconds
        if seconds > longest:
            longest = seconds
        score = (1.0 - share) * longest + share * total
        within = 1 if score <= limits[fields.MOST_SCORE] else 0
        place += 1
    return 1 if within else 2


@compiled(INT)
def count_tilings(address):
    """Find what tilings move, given the address of the fields."""
    f = as_pointer(address)
    chains, offsets, steps = ints(f, fields.CHAINS), ints(f, fields.OFFSETS), ints(f, fields.STEPS)
    numbers, first, count = ints(f, fields.NUMBERS), ints(f, fields.FIRST), f[fields.TILINGS]
    for letter in range(f[fields.LETTERS]):
        for chain in range(chains[letter]):
            _count_chain(f, offsets[letter] + chain * f[fields.DEPTH], steps[letter])
    _keep_loops(f)
    loops, copies, left = ints(f, fields.KEPT_COUNT)[f[fields.LOOPS]], 0, -1
    for t in range(f[fields.TENSORS]):
        if ints(f, fields.COPY_FOOTPRINT)[t] >= copies:
            copies = ints(f, fields.COPY_FOOTPRINT)[t] + 1
    for tiling in range(count):
        calls, changed = 1.0, 0 if tiling else -1
        for letter in range(f[fields.LETTERS]):
            at = offsets[letter] + numbers[letter * count + tiling] * f[fields.DEPTH]
            if tiling and first[letter] != at:
                changed = changed | (1 << letter)
            first[letter] = at
            calls = calls * as_real(ints(f, fields.COUNTS)[at + 1])
        left = left | changed
        _find_trips(f, loops, changed)
        _find_footprints(f, loops, changed, 0, copies)
        _count_copies(f, loops, tiling)
        counted = _count_places(f, loops, tiling, left, calls, copies)
        left = 0 if counted else left
        reals(f, fields.CALLS)[tiling] = calls if counted == 1 else inf
