"""The worker protocol."""

from holdfast.http.routing import Routes

__all__ = ["routes"]

routes = Routes("worker protocol")
