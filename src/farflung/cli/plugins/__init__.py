"""The kubectl plugins `kubectl ws` and `kubectl kcp`.

A user waits for each of these commands.  So they import the rest of farflung, and packages outside of the standard
library, only if they need them, and have kubeconfig and YAML readers of their own: with the reader of `client/`,
`kubectl ws .` needs 166 ms of CPU instead of 44 ms, and with PyYAML's loader in C 73 ms.
"""
