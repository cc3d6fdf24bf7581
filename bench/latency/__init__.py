"""From an operator's call, and from the last approval, to the document on the wire."""
