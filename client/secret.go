package client

import (
	"context"
	"net/http"
	"net/url"
)

// Secret is the public form of a secret, without its value.
type Secret struct {
	Name      string   `json:"name"`
	Hosts     []string `json:"hosts,omitempty"`
	CreatedAt Time     `json:"createdAt"`
	UpdatedAt Time     `json:"updatedAt"`
}

func secretPath(name string) string { return "/api/secrets/" + url.PathEscape(name) }

// SecretList lists secrets by name.
func (c *Client) SecretList(ctx context.Context) (page Page[Secret], err error) {
	_, err = c.call(ctx, http.MethodGet, "/api/secrets", nil, &page)
	return page, err
}

// SecretPut stores a secret and the hosts that it is bound to. It replaces an existing secret with
// the same name.
func (c *Client) SecretPut(ctx context.Context, name string, value string, hosts []string) (s Secret, err error) {
	body := map[string]any{"value": value}
	if len(hosts) > 0 {
		body["hosts"] = hosts
	}
	_, err = c.call(ctx, http.MethodPut, secretPath(name), body, &s)
	return s, err
}

// SecretDelete deletes a secret.
func (c *Client) SecretDelete(ctx context.Context, name string) error {
	_, err := c.call(ctx, http.MethodDelete, secretPath(name), nil, new([]byte))
	return err
}
