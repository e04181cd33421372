"""A model behind any OpenAI-compatible ``/v1/chat/completions``: vLLM, SGLang, llama.cpp, Ollama, hosted services."""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote_to_bytes

from rlfactory_core.clients.replies import MAX_BYTES, bounded_request
from rlfactory_core.clients.wire import RefusedError, message_to_wire, reasoning_key, sampled_from_wire
from rlfactory_core.errors import BackendError, UsageError, nearest
from rlfactory_core.protocols import Request, Sampled
from rlfactory_core.types import Message, SamplingParams, ToolSpec
from rlfactory_core.utils.backoff import backoff_s
from rlfactory_core.utils.display import without_credentials

if TYPE_CHECKING:
    import httpx

__all__ = ["OpenAIClient", "ServerModel"]

T = TypeVar("T")

KEY_VARIABLE, OPENAI_KEY_VARIABLE = "RLFACTORY_API_KEY", "OPENAI_API_KEY"  # the latter for OpenAI's servers alone

_START_DEADLINE_S = 60.0  # a server that loads its model answers late
_OF_A_START = ("created", "permission", "status")  # they change while the model stays the same
_SEED_BITS = 0x7FFFFFFF  # some servers accept no larger seeds
_PROBE = Message("user", "Hello")
_PROBE_PARAMS = SamplingParams(max_tokens=16, temperature=0.0)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits on the requests of a client, with its defaults."""

    concurrency: int = 64  # requests in flight
    deadline_s: float = 600.0  # for one completion from when it has a connection, with retries
    retries: int = 6  # after the first request: on 429 (with its ``Retry-After``), 5xx and lost connections
    backoff_s: tuple[float, float] = (0.5, 20.0)  # the first pause and the longest pause, before jitter
    reply_bytes: int = MAX_BYTES  # a longer reply is an error


class ServerModel:
    """A `protocols.Model` without ids: its turns can be read and scored, but not trained on. Subclasses answer."""

    chat: None = None

    async def answer(self, request: Request) -> Sampled | None:
        """See `protocols.Model`."""
        raise NotImplementedError

    async def release(self, session: str) -> None:
        """Nothing is kept of a session."""


class OpenAIClient(ServerModel):
    """A client for one model, with pooled connections; ``await open()`` before and ``await close()`` after.

    Args:
        base_url: such as ``http://127.0.0.1:8000/v1``; ``/v1`` is added to an address without a path. A user and a
            password in it are sent, but stand in no message.
        model: the served model's id; None: the server has to serve exactly one.
        api_key: sent as a bearer token; by default the value of ``RLFACTORY_API_KEY``, or of ``OPENAI_API_KEY`` if the
            server is OpenAI's, or none.
        extra: fields of every completion's request, such as ``{"chat_template_kwargs": {"enable_thinking": False}}``.
        limits: fields of `RequestLimits`, such as ``deadline_s=60.0``.

    Raises:
        UsageError: ``base_url`` is not an address.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        extra: Mapping[str, Any] = {},
        **limits: Any,
    ) -> None:
        self.base_url = without_credentials(address := _address(base_url))
        self._model = model
        self._authorization = _authorization(address, api_key)
        self._limits = RequestLimits(**limits)
        self._extra = dict(extra)
        self._slots = asyncio.Semaphore(self._limits.concurrency)
        self._client: httpx.AsyncClient | None = None
        self._reasoning_key: str | None = None
        self._max_tokens_key = "max_tokens"
        self._listed: dict[str, Mapping[str, Any]] = {}  # the server's entry for each of its models

    @property
    def model(self) -> str:
        """The served model's id, known once open."""
        if self._model is None:
            raise RuntimeError("The client is not open: await open() first.")
        return self._model

    @property
    def description(self) -> Mapping[str, Any]:
        """The server's entry for the model at ``/models``, without what changes at a start; empty: it has none."""
        return {key: value for key, value in self._listed.get(self.model, {}).items() if key not in _OF_A_START}

    async def open(self, tools: Sequence[ToolSpec] = (), *, probe: bool = True, choose: str = "with --model") -> None:
        """Find the model and let it write a few tokens with these tools, so that errors show here.

        If that fails, the client is closed and may be opened again.

        Args:
            probe: False: only ask which models are served, if the model may be busy.
            choose: how the user names one of several models.

        Raises:
            BackendError: nothing answers, the key is refused, or the model cannot be used with tools.
            UsageError: several models are served and none was named.
        """
        self._connect()
        try:
            served = await self.served()
            self._model = self._model or self._only(served, choose)
            if probe:
                await self._probe(tools, served)
        except BaseException:
            await self.close()
            raise

    async def served(self, deadline_s: float = _START_DEADLINE_S) -> list[str] | None:
        """The served models' ids; None if the server cannot list them and a model was named.

        This is the cheapest way to find out whether the server answers. It may be called before `open`; the client has
        to be closed then, too.

        Raises:
            BackendError: the server does not answer, or refuses.
        """
        self._connect()
        try:
            data = await asyncio.wait_for(self._request("GET", "/models"), deadline_s)
            self._listed = {str(row["id"]): row for row in data["data"]}
            return list(self._listed)
        except TimeoutError:
            raise self._failed(f"gave no answer within {deadline_s:g} s", start=True) from None
        except RefusedError as error:
            if error.status in (404, 405, 501) and self._model is not None:
                return None
            raise self._failed(str(error), start=True, refused=error) from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._failed("did not list its models at /models in OpenAI's format", start=True) from error

    async def answer(self, request: Request, extra: Mapping[str, Any] = {}) -> Sampled | None:
        """See `protocols.Model`. Cancelling it closes the connection, so that the server can stop, too.

        Args:
            extra: fields of this request; they override the client's own and those that follow from the request.

        Raises:
            BackendError: there is no answer in time, retries included, or it cannot be read.
        """
        body = self._body(request) | self._extra | dict(extra)
        found = await self.ask(
            "/chat/completions", body, lambda data: (sampled_from_wire(data, body), reasoning_key(data))
        )
        if found is None:
            return None
        sampled, key = found
        self._reasoning_key = self._reasoning_key or key
        return sampled

    async def ask(
        self, path: str, body: Mapping[str, Any], read: Callable[[Any], T], what: str = "a chat completion"
    ) -> T | None:
        """What ``read`` finds in the JSON of an answer; None: the request is longer than the model's context.

        Args:
            read: raises a `ValueError` if the answer is not ``what``.

        Raises:
            BackendError: as for `answer`.
        """
        async with self._slots:
            try:
                data = await asyncio.wait_for(self._request("POST", path, body), self._limits.deadline_s)
                return read(data)
            except TimeoutError:
                raise self._failed(f"gave no answer within {self._limits.deadline_s:g} s") from None
            except RefusedError as error:
                if error.context_is_full:
                    return None
                raise self._failed(str(error), refused=error) from error
            except (ValueError, OverflowError, RecursionError) as error:
                raise self._failed(f"did not answer with {what}: {error}") from error

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _connect(self) -> None:
        if self._client is not None:
            return
        import httpx

        headers = {"Content-Type": "application/json"}
        if self._authorization:
            headers["Authorization"] = self._authorization
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=self._limits.concurrency)
        # The deadline is for the whole request; httpx would limit each phase of it.
        self._client = httpx.AsyncClient(headers=headers, limits=limits, timeout=None)  # noqa: S113

    def _body(self, request: Request) -> dict[str, Any]:
        params = request.params
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [message_to_wire(message, self._reasoning_key) for message in request.messages],
            "temperature": params.temperature,
            self._max_tokens_key: params.max_tokens,
        }
        if params.temperature > 0:
            body |= {"top_p": params.top_p, "seed": params.seed & _SEED_BITS}
        if request.tools:
            body["tools"] = [tool.function_schema for tool in request.tools]
        return body

    def _only(self, served: Sequence[str] | None, choose: str) -> str:
        if served is not None and len(served) == 1:
            return served[0]
        known = ", ".join((served or ())[:20]) or "none"
        raise UsageError(f"{self.base_url} serves {len(served or ())} models; choose one {choose}. Served: {known}.")

    async def _probe(self, tools: Sequence[ToolSpec], served: Sequence[str] | None) -> None:
        try:
            await self.answer(Request([_PROBE], tools, _PROBE_PARAMS))
        except BackendError as error:
            refused = error.__cause__
            if not isinstance(refused, RefusedError):
                raise
            if self._max_tokens_key == "max_tokens" and "max_completion_tokens" in refused.text:
                self._max_tokens_key = "max_completion_tokens"  # OpenAI's own name for its reasoning models
                await self._probe(tools, served)
                return
            hint = ""
            if refused.status in (401, 403):
                hint = f" Set the key with {KEY_VARIABLE}; {OPENAI_KEY_VARIABLE} is sent to OpenAI's servers alone."
            elif served and self.model not in served:
                hint = f" It does not list a model '{self.model}'. {nearest(self.model, served)}"
            elif tools and "tool" in refused.text.lower():
                hint = " Start the server with tool calling (vLLM: --enable-auto-tool-choice --tool-call-parser NAME)."
            raise BackendError(
                f"{error}{hint}", status=refused.status, retry_after_s=refused.retry_after_s
            ) from refused

    async def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON of an answer, with retries if they may help.

        Raises:
            RefusedError: the answer has an error status.
            BackendError: there is no answer after all retries, or it is not valid HTTP.
            ValueError: the answer is not JSON.
        """
        import httpx

        if self._client is None:
            raise RuntimeError("The client is not open: await open() first.")
        content = None if body is None else json.dumps(body)
        attempt = 0
        while True:
            attempt += 1
            wait_s = 0.0
            try:
                url, most = self.base_url + path, self._limits.reply_bytes
                response = await bounded_request(self._client, method, url, max_bytes=most, content=content)
            except httpx.TransportError as error:
                if attempt > self._limits.retries or (method == "GET" and isinstance(error, httpx.ConnectError)):
                    what = f"cannot be reached ({str(error) or type(error).__name__})"
                    raise self._failed(what, start=method == "GET") from error
            except httpx.HTTPError as error:  # such as a body that is too long, or not compressed as it says
                raise self._failed(f"gave an answer that cannot be read ({error})") from error
            else:
                if response.is_success:
                    return response.json()
                refused = RefusedError(response.status_code, response.text, response.headers)
                if attempt > self._limits.retries or not refused.may_pass:
                    raise refused
                wait_s = refused.retry_after_s
            await asyncio.sleep(wait_s + backoff_s(attempt, *self._limits.backoff_s))

    def _failed(self, what: str, *, start: bool = False, refused: RefusedError | None = None) -> BackendError:
        hint = " Expected an OpenAI-compatible server there; start it, or correct the address." if start else ""
        text = f"{self.base_url} {what.rstrip('.')}.{hint}"
        if refused is None:
            return BackendError(text)
        return BackendError(text, status=refused.status, retry_after_s=refused.retry_after_s)


def _address(base_url: str) -> str:
    import httpx

    _, at, rest = base_url.rpartition("@")  # what is no address may have its password anywhere before the @
    address = f"…@{rest}" if at else rest
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        reason = "" if at else f" ({error})"
        raise UsageError(f"'{address}' is not an address{reason}. Expected http://HOST:PORT/v1.") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"'{address}' is not an http address. Expected http://HOST:PORT/v1.")
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    return str(url.copy_with(path=path or "/v1"))


def _authorization(address: str, api_key: str | None) -> str:
    """The header's value; empty if there is neither a login nor a key."""
    import httpx

    url = httpx.URL(address)
    if url.userinfo:
        return f"Basic {b64encode(unquote_to_bytes(url.userinfo)).decode()}"
    is_openai = url.host == "openai.com" or url.host.endswith(".openai.com")
    variables = (KEY_VARIABLE, *((OPENAI_KEY_VARIABLE,) if is_openai else ()))
    key = api_key or next(filter(None, map(os.environ.get, variables)), None)
    return f"Bearer {key}" if key else ""
