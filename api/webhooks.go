package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/lifecycle"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/webhook"
)

// Webhooks stores webhooks and their deliveries.
type Webhooks interface {
	// WebhookCreate stores an endpoint and its sealed secret. Error: limit_reached if there are too
	// many endpoints.
	WebhookCreate(ctx context.Context, e webhook.Endpoint, sealed []byte) (webhook.Endpoint, error)
	// WebhookList returns endpoints, newest first.
	WebhookList(ctx context.Context) ([]webhook.Endpoint, error)
	// WebhookGet returns an endpoint. Like every method, it returns the error webhook_not_found if
	// the endpoint does not exist.
	WebhookGet(ctx context.Context, id string) (webhook.Endpoint, error)
	WebhookUpdate(ctx context.Context, id string, change func(*webhook.Endpoint)) (webhook.Endpoint, error)
	// WebhookRotate replaces the secret. The previous secret also signs during the overlap.
	WebhookRotate(ctx context.Context, id string, sealed []byte, overlap time.Duration) (webhook.Endpoint, error)
	WebhookDelete(ctx context.Context, id string) error
	// WebhookTest creates a test delivery to an endpoint.
	WebhookTest(ctx context.Context, id string) (webhook.Delivery, error)
	// WebhookDeliveryList returns deliveries without attempts, newest first.
	WebhookDeliveryList(ctx context.Context, id string, status webhook.Status, limit int, cursor string) (items []webhook.Delivery, nextCursor string, err error)
	// WebhookDeliveryGet returns a delivery. Error: delivery_not_found.
	WebhookDeliveryGet(ctx context.Context, id, deliveryID string) (webhook.Delivery, error)
	// WebhookRedeliver repeats deliveries that have ended: the delivery with the given id or, if
	// the id is empty, those with the given statuses since a time. It returns their number.
	WebhookRedeliver(ctx context.Context, id, deliveryID string, statuses []webhook.Status, since time.Time) (int, error)
}

// webhooks are the routes of webhooks.
type webhooks struct {
	*Server
	store Webhooks
}

// webhookJSON is a webhook as clients see it: without its secret.
type webhookJSON struct {
	ID             string            `json:"id"`
	URL            string            `json:"url"`
	Description    string            `json:"description,omitempty"`
	Types          []lifecycle.Type  `json:"types"`
	SessionID      string            `json:"sessionId,omitempty"`
	Agent          string            `json:"agent,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	Enabled        bool              `json:"enabled"`
	DisabledReason string            `json:"disabledReason,omitempty"`
	FailingSince   *resource.Time    `json:"failingSince,omitempty"`
	Pending        int64             `json:"pending"`
	RotatedUntil   *resource.Time    `json:"rotatedUntil,omitempty"`
	CreatedAt      resource.Time     `json:"createdAt"`
	UpdatedAt      resource.Time     `json:"updatedAt"`
	// Secret is only set in the response to the request that creates it.
	Secret string `json:"secret,omitempty"`
}

func webhookOf(e webhook.Endpoint) webhookJSON {
	types := e.Filter.Types
	if types == nil {
		types = []lifecycle.Type{}
	}
	return webhookJSON{
		ID: e.ID, URL: e.URL, Description: e.Description, Types: types, SessionID: e.Filter.SessionID, Agent: e.Filter.Agent, Metadata: e.Filter.Metadata,
		Enabled: e.Enabled, DisabledReason: e.DisabledReason, FailingSince: resource.OptionalTime(e.FailingSince), Pending: e.Pending,
		RotatedUntil: resource.OptionalTime(e.RotatedUntil), CreatedAt: resource.Time(e.CreatedAt), UpdatedAt: resource.Time(e.UpdatedAt),
	}
}

// deliveryJSON is a delivery as clients see it. Lists have no attempts.
type deliveryJSON struct {
	ID        string         `json:"id"`
	WebhookID string         `json:"webhookId"`
	Type      lifecycle.Type `json:"type"`
	SessionID string         `json:"sessionId,omitempty"`
	Position  int64          `json:"position,omitempty"`
	Status    webhook.Status `json:"status"`
	Reason    string         `json:"reason,omitempty"`
	Tries     int            `json:"tries"`
	NextAt    *resource.Time `json:"nextAt,omitempty"`
	CreatedAt resource.Time  `json:"createdAt"`
	EndedAt   *resource.Time `json:"endedAt,omitempty"`
	Attempts  []attemptJSON  `json:"attempts,omitempty"`
}

// attemptJSON is an attempt as clients see it.
type attemptJSON struct {
	No         int           `json:"no"`
	At         resource.Time `json:"at"`
	DurationMS int64         `json:"durationMs"`
	Code       int           `json:"code,omitempty"`
	Error      string        `json:"error,omitempty"`
}

func deliveryOf(d webhook.Delivery) deliveryJSON {
	out := deliveryJSON{
		ID: d.ID, WebhookID: d.EndpointID, Type: d.Type, SessionID: d.SessionID, Position: d.Position, Status: d.Status, Reason: d.Reason, Tries: d.Tries,
		NextAt: resource.OptionalTime(d.NextAt), CreatedAt: resource.Time(d.CreatedAt), EndedAt: resource.OptionalTime(d.EndedAt),
	}
	for _, a := range d.Attempts {
		out.Attempts = append(out.Attempts, attemptJSON{No: a.No, At: resource.Time(a.At), DurationMS: a.Duration.Milliseconds(), Code: a.Code, Error: a.Error})
	}
	return out
}

// kept returns a handler that requires the store.
func (s *webhooks) kept(handler echo.HandlerFunc) echo.HandlerFunc {
	if s.store != nil {
		return handler
	}
	return func(echo.Context) error {
		return failure.Errorf(failure.NotSupported, "this api does not support webhooks")
	}
}

func webhookID(c echo.Context) (string, error) {
	return pathID(c, "webhookId", webhook.Prefix)
}

func pathID(c echo.Context, name, prefix string) (string, error) {
	id := c.Param(name)
	if !session.ValidID(prefix, id) {
		return "", invalid(name, "must be %s and 32 lower-case hexadecimal digits", prefix)
	}
	return id, nil
}

func (s *webhooks) list(c echo.Context) error {
	endpoints, err := s.store.WebhookList(c.Request().Context())
	if err != nil {
		return err
	}
	items := make([]webhookJSON, len(endpoints))
	for i, e := range endpoints {
		items[i] = webhookOf(e)
	}
	return c.JSON(http.StatusOK, newPage(items, ""))
}

func (s *webhooks) get(c echo.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	e, err := s.store.WebhookGet(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, webhookOf(e))
}

// create stores an endpoint. Only this response contains the secret.
func (s *webhooks) create(c echo.Context) error {
	body, _, err := readBody(c, false)
	if err != nil {
		return err
	}
	body.required("url")
	e := webhook.Endpoint{ID: session.NewID(webhook.Prefix), Enabled: true}
	s.fields(body)(&e)
	if err := body.done(); err != nil {
		return err
	}
	value, sealed, err := s.newSecret(e.ID)
	if err != nil {
		return err
	}
	if e, err = s.store.WebhookCreate(c.Request().Context(), e, sealed); err != nil {
		return err
	}
	return s.reveal(c, http.StatusCreated, e, value)
}

// reveal responds with an endpoint and its secret.
func (s *webhooks) reveal(c echo.Context, status int, e webhook.Endpoint, value secret.Value) error {
	c.Response().Header().Set(echo.HeaderLocation, "/api/webhooks/"+e.ID)
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	out := webhookOf(e)
	out.Secret = value.Reveal()
	return c.JSON(status, out)
}

func (s *webhooks) newSecret(id string) (value secret.Value, sealed []byte, err error) {
	if s.cfg.Secrets == nil {
		return value, nil, failure.Errorf(failure.Unavailable, "this api has no OVERWINTER_SECRET_KEY, so it cannot encrypt the secret of a webhook")
	}
	value = webhook.NewSecret()
	return value, s.cfg.Secrets.Seal(webhook.SealName(id), value), nil
}

func (s *webhooks) patch(c echo.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, false)
	if err != nil {
		return err
	}
	change := s.fields(body)
	enabled, given := body.given("enabled")
	if err := body.done(); err != nil {
		return err
	}
	e, err := s.store.WebhookUpdate(c.Request().Context(), id, func(e *webhook.Endpoint) {
		change(e)
		if given {
			e.Enabled = enabled
		}
	})
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, webhookOf(e))
}

func (s *webhooks) delete(c echo.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	if err := s.store.WebhookDelete(c.Request().Context(), id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// rotate replaces the secret. Only this response contains the new secret.
func (s *webhooks) rotate(c echo.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, true)
	if err != nil {
		return err
	}
	overlap, given := body.duration("overlap", 0, webhook.MaxOverlap)
	if !given {
		overlap = webhook.DefaultOverlap
	}
	if err := body.done(); err != nil {
		return err
	}
	value, sealed, err := s.newSecret(id)
	if err != nil {
		return err
	}
	e, err := s.store.WebhookRotate(c.Request().Context(), id, sealed, overlap)
	if err != nil {
		return err
	}
	return s.reveal(c, http.StatusOK, e, value)
}

func (s *webhooks) test(c echo.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	d, err := s.store.WebhookTest(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, deliveryOf(d))
}

func (s *webhooks) deliveries(c echo.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	limit, cursor, err := listQuery(c)
	if err != nil {
		return err
	}
	status := webhook.Status(c.QueryParam("status"))
	switch status {
	case "", webhook.Pending, webhook.Delivered, webhook.Failed:
	default:
		return invalid("status", "must be one of: pending, delivered, failed")
	}
	found, next, err := s.store.WebhookDeliveryList(c.Request().Context(), id, status, limit, cursor)
	if err != nil {
		return err
	}
	items := make([]deliveryJSON, len(found))
	for i, d := range found {
		items[i] = deliveryOf(d)
	}
	return c.JSON(http.StatusOK, newPage(items, next))
}

func deliveryID(c echo.Context) (id, delivery string, err error) {
	if id, err = webhookID(c); err == nil {
		delivery, err = pathID(c, "deliveryId", webhook.DeliveryPrefix)
	}
	return id, delivery, err
}

func (s *webhooks) delivery(c echo.Context) error {
	id, delivery, err := deliveryID(c)
	if err != nil {
		return err
	}
	d, err := s.store.WebhookDeliveryGet(c.Request().Context(), id, delivery)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, deliveryOf(d))
}

// redeliver repeats one delivery. A pending one stays pending.
func (s *webhooks) redeliver(c echo.Context) error {
	id, delivery, err := deliveryID(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	if _, err := s.store.WebhookDeliveryGet(ctx, id, delivery); err != nil {
		return err
	}
	if _, err := s.store.WebhookRedeliver(ctx, id, delivery, nil, time.Time{}); err != nil {
		return err
	}
	d, err := s.store.WebhookDeliveryGet(ctx, id, delivery)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, deliveryOf(d))
}

// replay repeats deliveries that have ended since a time.
func (s *webhooks) replay(c echo.Context) error {
	id, err := webhookID(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, false)
	if err != nil {
		return err
	}
	body.required("since")
	since := body.time("since")
	statuses := []webhook.Status{webhook.Failed}
	if body.oneOf("status", "failed", "failed", "all") == "all" {
		statuses = append(statuses, webhook.Delivered)
	}
	if err := body.done(); err != nil {
		return err
	}
	n, err := s.store.WebhookRedeliver(c.Request().Context(), id, "", statuses, since)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, map[string]int{"replayed": n})
}

// fields reads the fields that create and patch share, and returns a function that applies them.
func (s *webhooks) fields(body *object) func(*webhook.Endpoint) {
	var changes []func(*webhook.Endpoint)
	if url, ok := body.text("url"); ok {
		if wrong := webhook.CheckURL(url, s.cfg.PrivateWebhooks); wrong != "" {
			body.wrong("url", "%s", wrong)
		}
		changes = append(changes, func(e *webhook.Endpoint) { e.URL = url })
	}
	if text, ok := body.text("description"); ok {
		if utf8.RuneCountInString(text) > webhook.MaxDescription {
			body.wrong("description", "has more than %d characters", webhook.MaxDescription)
		}
		changes = append(changes, func(e *webhook.Endpoint) { e.Description = text })
	}
	if raw, ok := body.take("types"); ok {
		var types []lifecycle.Type
		if json.Unmarshal(raw, &types) != nil || types == nil {
			body.wrong("types", "must be a list of types; an empty one is all")
		} else if wrong := webhook.CheckTypes(types); wrong != "" {
			body.wrong("types", "%s", wrong)
		}
		changes = append(changes, func(e *webhook.Endpoint) { e.Filter.Types = types })
	}
	if id, ok := body.text("sessionId"); ok {
		if id != "" && !session.ValidID(session.SessionPrefix, id) {
			body.wrong("sessionId", "must be %s and 32 lower-case hexadecimal digits, or empty for all", session.SessionPrefix)
		}
		changes = append(changes, func(e *webhook.Endpoint) { e.Filter.SessionID = id })
	}
	if name, ok := body.short("agent", maxAgentFilter); ok {
		changes = append(changes, func(e *webhook.Endpoint) { e.Filter.Agent = name })
	}
	if texts, ok := body.metadataFilter("metadata"); ok {
		changes = append(changes, func(e *webhook.Endpoint) { e.Filter.Metadata = texts })
	}
	return func(e *webhook.Endpoint) {
		for _, change := range changes {
			change(e)
		}
	}
}

const (
	maxAgentFilter    = 64
	maxMetadataFilter = 10
)

// metadataFilter reads the string members that the metadata of sessions must have.
func (o *object) metadataFilter(name string) (map[string]string, bool) {
	raw, ok := o.take(name)
	if !ok {
		return nil, false
	}
	var texts map[string]string
	if json.Unmarshal(raw, &texts) != nil || texts == nil || len(texts) > maxMetadataFilter || len(raw) > session.MaxMetadataBytes {
		o.wrong(name, "must be an object of at most %d texts", maxMetadataFilter)
		return nil, false
	}
	return texts, true
}

// given reads true or false, and reports whether the field was present.
func (o *object) given(name string) (value, ok bool) {
	_, ok = o.fields[name]
	return o.boolean(name), ok
}

// time reads a time.
func (o *object) time(name string) time.Time {
	text, ok := o.text(name)
	if !ok {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		o.wrong(name, "must be a time such as 2026-01-31T12:00:00Z")
	}
	return at
}
