"""Documents as machines and the checkers read them: the same bytes once for all."""

from forewarn_base.protocol.documents import Document, read_document

DOCUMENTS_MAX = 4096

_documents: dict[bytes, Document] = {}


def read(body: bytes) -> Document:
    """Read a document; the same bytes are read once for all machines, and for the checkers."""
    found = _documents.get(body)
    if found is None:
        if len(_documents) >= DOCUMENTS_MAX:
            _documents.clear()
        found = _documents[body] = read_document(body)
    return found
