from .attributes import optional_attributes as optional_attributes
from .discovery import PluginEntry as PluginEntry
from .discovery import discover as discover
from .fingerprint import Fingerprint as Fingerprint
from .loading import Registration as Registration
from .loading import is_file as is_file
from .registry import Registry as Registry
