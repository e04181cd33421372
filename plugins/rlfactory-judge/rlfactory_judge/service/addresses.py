"""Where the judge answers, as the options have it."""

from __future__ import annotations

from rlfactory_core.errors import UsageError
from rlfactory_judge.options import JudgeOptions


def addresses(options: JudgeOptions) -> tuple[tuple[str, ...], str | None]:
    """The endpoints and the model's id; None: the only one that is served.

    Raises:
        UsageError: none is given, and no endpoint file can be read.
    """
    if options.url is not None:
        urls = (options.url,) if isinstance(options.url, str) else tuple(options.url)
        if not urls:
            raise UsageError("judge.url is empty. Give one address or several, such as http://127.0.0.1:8000/v1.")
        return urls, options.model
    if options.placement == "pool":
        raise UsageError(
            "placement=pool: the judge's model is served by the engine verl, and this run has another one. Choose "
            "engine=verl, or give judge.url."
        )
    from rlfactory_judge.serving.endpoint_file import default_endpoints, read_endpoints

    file = read_endpoints(options.endpoints or default_endpoints())
    return file.urls, options.model or file.model
