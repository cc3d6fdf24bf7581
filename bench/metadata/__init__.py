"""How fast the metadata service answers, beside Go's net/http and nginx."""
