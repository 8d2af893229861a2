"""Everything that touches PyTorch's private parts or hangs on its version, one file a subject, each with its reason.

Nothing else in the package reaches below the public API. Written against 2.13; looked at up to 2.15. A test for each
private name says at once what a new PyTorch changed.
"""
