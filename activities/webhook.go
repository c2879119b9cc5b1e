package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/webhook"
)

// webhookStore stores the deliveries.
type webhookStore interface {
	// WebhookDeliveryDue returns a delivery with its endpoint and event; delivery_not_found if it
	// was deleted.
	WebhookDeliveryDue(ctx context.Context, id string) (webhook.Due, error)
	// WebhookAttempted records an attempt, if one was made, and the next state; over reports that
	// the delivery has ended.
	WebhookAttempted(ctx context.Context, id string, a *webhook.Attempt, v webhook.Verdict) (over bool, err error)
}

// Opener opens values that are sealed under a name.
type Opener interface {
	Open(name string, sealed []byte) (secret.Value, error)
}

// Webhooks makes the attempts at deliveries to webhooks.
type Webhooks struct {
	Store  webhookStore
	Sender *webhook.Sender
	Opener Opener // nil: no secret opens
	Logger *slog.Logger
}

// DeliveryRef names a delivery.
type DeliveryRef struct {
	DeliveryID string `json:"deliveryId"`
}

// Attempted is the result of an attempt.
type Attempted struct {
	Ended bool          `json:"over,omitempty"`
	Pause time.Duration `json:"pause,omitempty"` // until the next attempt
}

// AttemptDelivery makes an attempt at a delivery, unless it has ended or its next attempt is not
// due. If its result is lost, the receiver gets the delivery again, with the same id.
func (w *Webhooks) AttemptDelivery(ctx context.Context, in DeliveryRef) (Attempted, error) {
	due, err := w.Store.WebhookDeliveryDue(ctx, in.DeliveryID)
	if failure.CodeOf(err) == failure.NoDelivery {
		return Attempted{Ended: true}, nil
	}
	if err != nil {
		return Attempted{}, err
	}
	d := due.Delivery
	if d.Status != webhook.Pending {
		return Attempted{Ended: true}, nil
	}
	if early := time.Until(d.NextAt); early > time.Second {
		return Attempted{Pause: early}, nil
	}
	attempt, verdict := w.attempt(ctx, due)
	if ctx.Err() != nil {
		return Attempted{}, ctx.Err() // the worker stops, and another makes the attempt
	}
	ended, err := w.Store.WebhookAttempted(ctx, d.ID, attempt, verdict)
	if err != nil {
		return Attempted{}, err
	}
	w.log(ctx, due, attempt, verdict)
	return Attempted{Ended: ended, Pause: verdict.Pause}, nil
}

func (w *Webhooks) attempt(ctx context.Context, due webhook.Due) (*webhook.Attempt, webhook.Verdict) {
	fails := func(reason string) (*webhook.Attempt, webhook.Verdict) {
		return nil, webhook.Verdict{Status: webhook.Failed, Reason: reason}
	}
	switch {
	case !due.Endpoint.Enabled:
		return fails(webhook.ReasonDisabled)
	case due.Event == nil:
		return fails(webhook.ReasonEventNotKept)
	}
	secrets, err := w.open(due)
	if err != nil {
		w.Logger.ErrorContext(ctx, "could not decrypt the secret of a webhook", slog.String("webhook_id", due.Endpoint.ID), slog.Any("error", err))
		return fails(webhook.ReasonSecretUnknown)
	}
	body, err := json.Marshal(webhook.MessageOf(*due.Event))
	if err != nil {
		return fails(webhook.ReasonEventNotKept) // its data is no JSON
	}
	at := time.Now()
	answer := w.Sender.Send(ctx, due.Endpoint.URL, due.Delivery.ID, at, body, secrets...)
	attempt := &webhook.Attempt{At: at, Duration: time.Since(at), Code: answer.Code, Error: answer.Error}
	return attempt, webhook.Judge(answer, due.Delivery.Tries)
}

func (w *Webhooks) open(due webhook.Due) (secrets []secret.Value, err error) {
	if w.Opener == nil {
		return nil, fmt.Errorf("this worker has no OVERWINTER_SECRET_KEY")
	}
	for _, sealed := range [][]byte{due.Sealed, due.OldSealed} {
		if sealed == nil {
			continue
		}
		value, err := w.Opener.Open(webhook.SealName(due.Endpoint.ID), sealed)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, value)
	}
	return secrets, nil
}

func (w *Webhooks) log(ctx context.Context, due webhook.Due, a *webhook.Attempt, v webhook.Verdict) {
	level, text := slog.LevelInfo, ""
	if v.Status != webhook.Delivered {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.String("webhook_id", due.Endpoint.ID), slog.String("delivery_id", due.Delivery.ID), slog.String("type", string(due.Delivery.Type)),
		slog.String("session_id", due.Delivery.SessionID), slog.Int("attempt", due.Delivery.Tries+1), slog.String("status", string(v.Status)),
	}
	if a != nil {
		attrs, text = append(attrs, slog.Int("code", a.Code), slog.Int64("duration_ms", a.Duration.Milliseconds())), a.Error
	}
	if text != "" {
		attrs = append(attrs, slog.String("error", text))
	}
	if v.Reason != "" {
		attrs = append(attrs, slog.String("reason", v.Reason))
	}
	w.Logger.LogAttrs(ctx, level, "webhook delivery", attrs...)
}
