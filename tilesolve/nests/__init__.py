"""Planning of single loop nests: classes, tiles that count on prefetching, loop programs."""
