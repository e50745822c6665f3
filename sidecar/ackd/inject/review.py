"""Answers an AdmissionReview with an AdmissionReview (admission.k8s.io/v1)."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import msgspec

from ackd.errors import BadBodyError
from ackd.inject.pod import Decision, decide
from ackd.inject.settings import InjectSettings, Json
from ackd.unreadable import UNREADABLE

VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
REFUSED = 403


class AdmissionRequest(msgspec.Struct, frozen=True):
    """The fields that the injector uses. It ignores others, because later versions may add some."""

    uid: str
    object: Json
    namespace: str = ""
    dryRun: bool = False  # noqa: N815 - the API's name


class Review(msgspec.Struct, frozen=True):
    """An AdmissionReview with its request."""

    apiVersion: str  # noqa: N815 - the API's name
    kind: str
    request: AdmissionRequest


@dataclass(frozen=True, slots=True)
class Judged:
    """The answer to send, and the facts behind it for metrics and events."""

    answer: bytes
    decision: Decision
    request: AdmissionRequest


_DECODER = msgspec.json.Decoder(Review)


def judge(body: bytes, settings: InjectSettings, *, by_namespace: bool) -> Judged:
    """Answer one review. Raises BadBodyError when the body is not a review of a pod."""
    try:
        review = _DECODER.decode(body)
    except UNREADABLE as error:
        raise BadBodyError(f"Not an AdmissionReview of a new pod: {error}") from error
    if review.apiVersion != VERSION or review.kind != KIND:
        raise BadBodyError(f"Expected {KIND} of {VERSION}, not {review.kind} {review.apiVersion}.")
    request = review.request
    try:
        decision = decide(request.object, settings, by_namespace=by_namespace)
    except (AttributeError, KeyError, TypeError) as error:
        raise BadBodyError("The object is not shaped like a pod.") from error
    return Judged(_answer(request.uid, decision), decision, request)


def _answer(uid: str, decision: Decision) -> bytes:
    response: dict[str, Any] = {"uid": uid, "allowed": not decision.refusal}
    if decision.refusal:
        response["status"] = {"code": REFUSED, "reason": "Forbidden", "message": decision.refusal}
    elif decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(decision.patch)).decode()
    return msgspec.json.encode({"apiVersion": VERSION, "kind": KIND, "response": response})
