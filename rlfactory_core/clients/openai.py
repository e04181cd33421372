"""A model behind any OpenAI-compatible ``/v1/chat/completions``: vLLM, SGLang, llama.cpp, Ollama, hosted services."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from rlfactory_core.clients.base import Completion
from rlfactory_core.clients.pools import ConnectionPools
from rlfactory_core.clients.refusals import RefusedError
from rlfactory_core.clients.wire import completion_from_wire, message_to_wire, reasoning_key, tools_to_wire
from rlfactory_core.errors import BackendError, UsageError, nearest
from rlfactory_core.types import Message, SamplingParams, ToolSpec

__all__ = ["OpenAIClient"]

KEY_VARIABLES = ("RLFACTORY_API_KEY", "OPENAI_API_KEY")  # the first that is set

_START_DEADLINE_S = 60.0  # a server that is loading its model answers late
_SEED_BITS = 0x7FFFFFFF  # some servers take no more
_PROBE = Message("user", "Hello")
_PROBE_PARAMS = SamplingParams(max_tokens=16, temperature=0.0)


class OpenAIClient:
    """One pooled client for one model; ``await open()`` before and ``await close()`` after.

    Args:
        base_url: such as ``http://127.0.0.1:8000/v1``; ``/v1`` is added to an address without a path.
        model: the served model's id; None: the only one that is served.
        api_key: sent as a bearer token; by default the first of `KEY_VARIABLES` that is set, or none.
        concurrency: requests under way at once.
        deadline_s: seconds for one completion, from the moment at which it has its connection, retries included.
        retries: after the first request, on 429 (``Retry-After`` is heeded), 5xx and lost connections.
        backoff_s: the first pause and the longest, before jitter.
        extra: fields of every completion's request, such as ``{"chat_template_kwargs": {"enable_thinking": False}}``.

    Raises:
        UsageError: ``base_url`` is not an address.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        *,
        api_key: str | None = None,
        concurrency: int = 64,
        deadline_s: float = 600.0,
        retries: int = 6,
        backoff_s: tuple[float, float] = (0.5, 20.0),
        extra: Mapping[str, Any] = {},
    ) -> None:
        self.base_url = _address(base_url)
        self._model = model
        self._api_key = api_key or next(filter(None, map(os.environ.get, KEY_VARIABLES)), None)
        self._deadline_s, self._retries, self._backoff_s = deadline_s, retries, backoff_s
        self._concurrency, self._extra = concurrency, dict(extra)
        self._slots = asyncio.Semaphore(concurrency)
        self._client: ConnectionPools | None = None
        self._reasoning_key: str | None = None
        self._max_tokens_key = "max_tokens"
        self.sampled_tokens = 0  # in all, as the server counts

    @property
    def model(self) -> str:
        """The served model's id, known once open."""
        if self._model is None:
            raise RuntimeError("The client is not open: await open() first.")
        return self._model

    async def open(self, tools: Sequence[ToolSpec] = (), *, probe: bool = True) -> None:
        """Find the model and have it say a few tokens with these tools, so that what cannot work fails here.

        Where it fails, the client is closed and may be opened again.

        Args:
            probe: without it, only ask what is served: the model need not have time for an answer.

        Raises:
            BackendError: nothing answers, the key is refused, or the model cannot be used with tools.
            UsageError: several models are served and none was named.
        """
        self._connect()
        try:
            served = await self.served()
            self._model = self._model or self._only(served)
            if probe:
                await self._probe(tools, served)
        except BaseException:
            await self.close()
            raise

    async def served(self, deadline_s: float = _START_DEADLINE_S) -> list[str] | None:
        """The served models' ids; None where the server has no list of them and a model was named.

        The cheapest way to learn whether the server is there; also before `open`, and to be closed then, too.

        Raises:
            BackendError: it does not answer, or says no.
        """
        self._connect()
        try:
            data = await asyncio.wait_for(self._request("GET", "/models"), deadline_s)
            return [str(row["id"]) for row in data["data"]]
        except asyncio.TimeoutError:
            raise self._failed(f"gave no answer within {deadline_s:g} s", start=True) from None
        except RefusedError as error:
            if error.status in (404, 405, 501) and self._model is not None:
                return None
            raise self._failed(str(error), start=True, refused=error) from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._failed("did not list its models at /models in OpenAI's format", start=True) from error

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        params: SamplingParams,
        extra: Mapping[str, Any] = {},
    ) -> Completion | None:
        """See `base.ChatClient`. Cancelled, it closes the request's connection, so that the server can stop, too.

        Args:
            extra: fields of this request, which win over the client's own and over those that follow from ``params``.
        """
        body = self._body(messages, tools, params) | self._extra | dict(extra)
        async with self._slots:
            try:
                data = await asyncio.wait_for(self._request("POST", "/chat/completions", body), self._deadline_s)
                completion = completion_from_wire(data)
            except asyncio.TimeoutError:
                raise self._failed(f"gave no answer within {self._deadline_s:g} s") from None
            except RefusedError as error:
                if error.context_is_full:
                    return None
                raise self._failed(str(error), refused=error) from error
            except (ValueError, RecursionError) as error:
                raise self._failed(f"did not answer with a chat completion: {error}") from error
        self._reasoning_key = self._reasoning_key or reasoning_key(data)
        self.sampled_tokens += completion.sampled_tokens
        return completion

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _connect(self) -> None:
        if self._client is not None:
            return
        headers = {"Content-Type": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        self._client = ConnectionPools(headers, self._concurrency)

    def _body(self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: SamplingParams) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [message_to_wire(message, self._reasoning_key) for message in messages],
            "temperature": params.temperature,
            self._max_tokens_key: params.max_tokens,
        }
        if params.temperature > 0:
            body |= {"top_p": params.top_p, "seed": params.seed & _SEED_BITS}
        if tools:
            body["tools"] = tools_to_wire(tools)
        return body

    def _only(self, served: Sequence[str] | None) -> str:
        if served is not None and len(served) == 1:
            return served[0]
        known = ", ".join((served or ())[:20]) or "none"
        raise UsageError(
            f"{self.base_url} serves {len(served or ())} models; choose one with --model. Served: {known}."
        )

    async def _probe(self, tools: Sequence[ToolSpec], served: Sequence[str] | None) -> None:
        try:
            await self.complete([_PROBE], tools, _PROBE_PARAMS)
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
                hint = f" Set the key with {' or '.join(KEY_VARIABLES)}."
            elif served and self.model not in served:
                hint = f" It does not list a model '{self.model}'. {nearest(self.model, served)}"
            elif tools and "tool" in refused.text.lower():
                hint = " Start the server with tool calling (vLLM: --enable-auto-tool-choice --tool-call-parser NAME)."
            raise BackendError(
                f"{error}{hint}", status=refused.status, retry_after_s=refused.retry_after_s
            ) from refused

    async def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON of an answer, retried while that may help.

        Raises:
            RefusedError: an answer that says no.
            BackendError: no answer, after all retries, or one that HTTP cannot read.
            ValueError: an answer that is not JSON.
        """
        import httpx

        if self._client is None:
            raise RuntimeError("The client is not open: await open() first.")
        content = None if body is None else json.dumps(body)
        for attempt in count(1):
            wait_s = 0.0
            try:
                response = await self._client.request(method, self.base_url + path, content)
            except httpx.TransportError as error:
                if attempt > self._retries or (method == "GET" and isinstance(error, httpx.ConnectError)):
                    what = f"cannot be reached ({str(error) or type(error).__name__})"
                    raise self._failed(what, start=method == "GET") from error
            except httpx.HTTPError as error:  # such as a body that is not compressed as it says
                raise self._failed(f"gave an answer that cannot be read ({error})") from error
            else:
                if response.is_success:
                    return response.json()
                refused = RefusedError(response.status_code, response.text, response.headers)
                if attempt > self._retries or not refused.may_pass:
                    raise refused
                wait_s = refused.retry_after_s
            first, longest = self._backoff_s
            # Full jitter: callers that failed together do not come back together.
            jitter = random.uniform(0.0, min(longest, first * 2.0 ** (attempt - 1)))
            await asyncio.sleep(wait_s + jitter)
        raise AssertionError("count() never ends")

    def _failed(self, what: str, *, start: bool = False, refused: RefusedError | None = None) -> BackendError:
        hint = " Expected an OpenAI-compatible server there; start it, or mend the address." if start else ""
        text = f"{self.base_url} {what.rstrip('.')}.{hint}"
        if refused is None:
            return BackendError(text)
        return BackendError(text, status=refused.status, retry_after_s=refused.retry_after_s)


def _address(base_url: str) -> str:
    import httpx

    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise UsageError(f"'{base_url}' is not an address ({error}). Expected http://HOST:PORT/v1.") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise UsageError(f"'{base_url}' is not an http address. Expected http://HOST:PORT/v1.")
    path = url.path.rstrip("/").removesuffix("/chat/completions")
    return str(url.copy_with(path=path or "/v1"))
