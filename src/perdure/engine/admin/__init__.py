"""The admin interface: look at workflows and act on them, in this process or from another one.

* `Admin`: the methods, on an open database.
* `requests`, `views`: the same methods and their answers as data.
* `AdminServer`, `AdminClient`: the same methods over a socket in the store's folder, because an
  embedded store has one owner and everybody else has to ask it.
"""

from perdure.engine.admin.admin import Admin
from perdure.engine.admin.client import AdminClient, OwnerUnreachable
from perdure.engine.admin.endpoint import find_endpoint
from perdure.engine.admin.failures import ErrorView, RemoteRefusal
from perdure.engine.admin.server import AdminServer

__all__ = [
    "Admin",
    "AdminClient",
    "AdminServer",
    "ErrorView",
    "OwnerUnreachable",
    "RemoteRefusal",
    "find_endpoint",
]
