"""The kubectl plugins `kubectl ws` and `kubectl kcp`.

A person waits for every one of these commands, so nothing here imports the rest of farflung or anything beyond the
standard library before it is known to be needed.  Hence the kubeconfig and YAML readers of their own: with the reader
of `client/`, `kubectl ws .` needs 166 ms of CPU instead of 44 ms, and with PyYAML's loader in C 73 ms.
"""
