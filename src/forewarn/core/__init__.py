"""The pure core: what is promised, shown, released and carried out; no I/O, clock or chance."""
