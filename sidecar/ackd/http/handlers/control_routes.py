"""Routes of the admin port that change a running subscription."""

from __future__ import annotations

from ackd.api.messages import SubscriptionView
from ackd.http.formats.negotiation import JSON
from ackd.http.handlers import control
from ackd.http.server.router import Content, Route, RouteAnswer

_SUBSCRIPTION = "/v1/subscriptions/{subscription}"
_VIEW = (Content(JSON, SubscriptionView),)

CONTROL = (
    Route(
        "POST",
        "/v1/drain",
        "drain",
        "This sidecar delivers nothing more until its process ends. Settles work as before.",
        control.drain,
        "operate",
        (
            RouteAnswer(
                200, "The sidecar delivers nothing more.", (Content(JSON, control.Draining),)
            ),
        ),
        ("admin",),
    ),
    Route(
        "PATCH",
        _SUBSCRIPTION,
        "configure",
        "Change settings at every running sidecar. `null` restores the configured value.",
        control.configure,
        "operate",
        (RouteAnswer(200, "The subscription with the settings in force.", _VIEW),),
        ("admin",),
        body=(Content(JSON, control.SettingsPatch),),
        body_required=True,
        problems=(404, 503),
    ),
    Route(
        "POST",
        f"{_SUBSCRIPTION}/messages/{{topic}}/{{partition}}/{{offset}}/cancel",
        "cancel_message",
        "End a message that is in flight. Its worker learns of it at its next extend.",
        control.cancel,
        "operate",
        (RouteAnswer(200, "The message is ended.", (Content(JSON, control.CancelledMessage),)),),
        ("admin",),
        body=(Content(JSON, control.CancelBody),),
        problems=(404, 503),
    ),
    Route(
        "POST",
        f"{_SUBSCRIPTION}/pause",
        "pause",
        "Pause delivery, of the group or of this sidecar. Settles work as before.",
        control.pause,
        "operate",
        (RouteAnswer(200, "The subscription, paused.", _VIEW),),
        ("admin",),
        body=(Content(JSON, control.PauseBody),),
        problems=(404, 503),
    ),
    Route(
        "POST",
        f"{_SUBSCRIPTION}/resume",
        "resume",
        "End the pause of this scope. Without a pause nothing changes.",
        control.resume,
        "operate",
        (RouteAnswer(200, "The subscription; `pauses` lists the pauses that remain.", _VIEW),),
        ("admin",),
        body=(Content(JSON, control.ResumeBody),),
        problems=(404, 503),
    ),
)
