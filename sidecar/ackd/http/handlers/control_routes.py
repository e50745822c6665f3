"""Routes of the admin port that change a running subscription."""

from __future__ import annotations

from ackd.api.messages import SubscriptionView
from ackd.http.formats.negotiation import JSON
from ackd.http.handlers import control
from ackd.http.server.router import Answer, Content, Route

_SUBSCRIPTION = "/v1/subscriptions/{subscription}"
_VIEW = (Content(JSON, SubscriptionView),)

CONTROL = (
    Route(
        "POST",
        "/v1/drain",
        "drain",
        "Hand out nothing more until the process ends; leases can be settled as always.",
        control.drain,
        "operate",
        (Answer(200, "It does not any more.", (Content(JSON, control.Draining),)),),
        ("admin",),
    ),
    Route(
        "PATCH",
        _SUBSCRIPTION,
        "configure",
        "Change settings at every sidecar while it runs; null goes back to the file's.",
        control.configure,
        "operate",
        (Answer(200, "The subscription with the settings in force.", _VIEW),),
        ("admin",),
        body=(Content(JSON, control.SettingsPatch),),
        body_required=True,
        problems=(404, 503),
    ),
    Route(
        "POST",
        f"{_SUBSCRIPTION}/messages/{{topic}}/{{partition}}/{{offset}}/cancel",
        "cancel_message",
        "End a message that is in flight; its worker hears of it at its next extend.",
        control.cancel,
        "operate",
        (Answer(200, "It is over.", (Content(JSON, control.CancelledMessage),)),),
        ("admin",),
        body=(Content(JSON, control.CancelBody),),
        problems=(404, 503),
    ),
    Route(
        "POST",
        f"{_SUBSCRIPTION}/pause",
        "pause",
        "Hand out nothing more; leases can be settled as always.",
        control.pause,
        "operate",
        (Answer(200, "The subscription, paused.", _VIEW),),
        ("admin",),
        body=(Content(JSON, control.PauseBody),),
        problems=(404, 503),
    ),
    Route(
        "POST",
        f"{_SUBSCRIPTION}/resume",
        "resume",
        "End a pause of this scope; without one nothing happens.",
        control.resume,
        "operate",
        (Answer(200, "The subscription; `pauses` lists those that still hold.", _VIEW),),
        ("admin",),
        body=(Content(JSON, control.ResumeBody),),
        problems=(404, 503),
    ),
)
