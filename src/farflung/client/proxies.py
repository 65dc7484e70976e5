"""By whom requests go, as the environment says it."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

from farflung.client.errors import KubeconfigError


def proxy_to(server: SplitResult, said: str = "") -> str | None:
    """`said`: what the kubeconfig has for it, which counts before $HTTPS_PROXY, $HTTP_PROXY and $NO_PROXY."""
    proxy = said or _of_environment(server)
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise KubeconfigError(f"{proxy!r} is not the URL of a proxy that speaks HTTP")
    return proxy or None


def _of_environment(server: SplitResult) -> str:
    """Nothing for this machine itself, as nobody else can reach it."""
    host = server.hostname or ""
    if host == "localhost" or _is_loopback(host):
        return ""
    from urllib.request import getproxies, proxy_bypass  # with http.client and email: 10 ms

    return "" if proxy_bypass(server.netloc) else getproxies().get(server.scheme, "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
