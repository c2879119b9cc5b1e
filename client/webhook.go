package client

import (
	"context"
	"net/http"
	"net/url"
)

// Webhook is a webhook as the API sends it.
type Webhook struct {
	ID             string            `json:"id"`
	URL            string            `json:"url"`
	Description    string            `json:"description,omitempty"`
	Types          []string          `json:"types"`
	SessionID      string            `json:"sessionId,omitempty"`
	Agent          string            `json:"agent,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	Enabled        bool              `json:"enabled"`
	DisabledReason string            `json:"disabledReason,omitempty"`
	FailingSince   *Time             `json:"failingSince,omitempty"`
	Pending        int64             `json:"pending"`
	RotatedUntil   *Time             `json:"rotatedUntil,omitempty"`
	CreatedAt      Time              `json:"createdAt"`
	UpdatedAt      Time              `json:"updatedAt"`
	// Secret is only set by WebhookCreate and WebhookRotate.
	Secret string `json:"secret,omitempty"`
}

// WebhookFields are the fields of a new webhook, or the changes of an update. In an update, nil
// fields stay unchanged.
type WebhookFields struct {
	URL         *string           `json:"url,omitempty"`
	Description *string           `json:"description,omitempty"`
	Types       []string          `json:"types,omitempty"`
	SessionID   *string           `json:"sessionId,omitempty"`
	Agent       *string           `json:"agent,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Enabled     *bool             `json:"enabled,omitempty"`
}

// Delivery is a delivery as the API sends it. Lists have no attempts.
type Delivery struct {
	ID        string            `json:"id"`
	WebhookID string            `json:"webhookId"`
	Type      string            `json:"type"`
	SessionID string            `json:"sessionId,omitempty"`
	Position  int64             `json:"position,omitempty"`
	Status    string            `json:"status"`
	Reason    string            `json:"reason,omitempty"`
	Tries     int               `json:"tries"`
	NextAt    *Time             `json:"nextAt,omitempty"`
	CreatedAt Time              `json:"createdAt"`
	EndedAt   *Time             `json:"endedAt,omitempty"`
	Attempts  []DeliveryAttempt `json:"attempts,omitempty"`
}

// DeliveryAttempt is one request of a delivery.
type DeliveryAttempt struct {
	No         int    `json:"no"`
	At         Time   `json:"at"`
	DurationMS int64  `json:"durationMs"`
	Code       int    `json:"code,omitempty"`
	Error      string `json:"error,omitempty"`
}

func webhookPath(id string) string { return "/api/webhooks/" + url.PathEscape(id) }

// WebhookList lists the webhooks, newest first.
func (c *Client) WebhookList(ctx context.Context) (page Page[Webhook], err error) {
	_, err = c.call(ctx, http.MethodGet, "/api/webhooks", nil, &page)
	return page, err
}

// WebhookCreate creates a webhook. The returned webhook has the secret.
func (c *Client) WebhookCreate(ctx context.Context, fields WebhookFields) (w Webhook, err error) {
	_, err = c.call(ctx, http.MethodPost, "/api/webhooks", fields, &w)
	return w, err
}

// WebhookUpdate changes a webhook.
func (c *Client) WebhookUpdate(ctx context.Context, id string, fields WebhookFields) (w Webhook, err error) {
	_, err = c.call(ctx, http.MethodPatch, webhookPath(id), fields, &w)
	return w, err
}

// WebhookDelete deletes a webhook.
func (c *Client) WebhookDelete(ctx context.Context, id string) error {
	_, err := c.call(ctx, http.MethodDelete, webhookPath(id), nil, new([]byte))
	return err
}

// WebhookRotate replaces the secret of a webhook. The previous secret also signs deliveries for the
// duration overlap, such as "24h".
func (c *Client) WebhookRotate(ctx context.Context, id, overlap string) (w Webhook, err error) {
	_, err = c.call(ctx, http.MethodPost, webhookPath(id)+"/rotate", map[string]string{"overlap": overlap}, &w)
	return w, err
}

// WebhookTest sends a test delivery to a webhook.
func (c *Client) WebhookTest(ctx context.Context, id string) (d Delivery, err error) {
	_, err = c.call(ctx, http.MethodPost, webhookPath(id)+"/test", nil, &d)
	return d, err
}

// DeliveryList lists the deliveries of a webhook, newest first. If status is not empty, it lists
// only deliveries with that status.
func (c *Client) DeliveryList(ctx context.Context, id, status string, limit int) (Page[Delivery], error) {
	query := url.Values{}
	if status != "" {
		query.Set("status", status)
	}
	return list[Delivery](ctx, c, webhookPath(id)+"/deliveries", query, limit)
}

// DeliveryGet returns a delivery with its attempts.
func (c *Client) DeliveryGet(ctx context.Context, id, deliveryID string) (d Delivery, err error) {
	_, err = c.call(ctx, http.MethodGet, webhookPath(id)+"/deliveries/"+url.PathEscape(deliveryID), nil, &d)
	return d, err
}

// DeliveryRepeat sends a delivery again.
func (c *Client) DeliveryRepeat(ctx context.Context, id, deliveryID string) (d Delivery, err error) {
	_, err = c.call(ctx, http.MethodPost, webhookPath(id)+"/deliveries/"+url.PathEscape(deliveryID)+"/redeliver", nil, &d)
	return d, err
}
