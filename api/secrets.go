package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// secretStore stores secrets.
type secretStore interface {
	// SecretPut stores the sealed value of a secret and the hosts that it is bound to. It replaces
	// an existing secret with the same name.
	SecretPut(ctx context.Context, name string, sealed []byte, hosts ...string) (info secret.Info, created bool, err error)
	// SecretsList returns secrets sorted by name.
	SecretsList(ctx context.Context) ([]secret.Info, error)
	// SecretDelete deletes a secret. Error: secret_not_found.
	SecretDelete(ctx context.Context, name string) error
}

// secrets are the routes of secrets.
type secrets struct {
	*Server
	store secretStore
}

// secretJSON is the public form of a secret, without its value.
type secretJSON struct {
	Name      string        `json:"name"`
	Hosts     []string      `json:"hosts,omitempty"`
	CreatedAt resource.Time `json:"createdAt"`
	UpdatedAt resource.Time `json:"updatedAt"`
}

func secretOf(s secret.Info) secretJSON {
	return secretJSON{Name: s.Name, Hosts: s.Hosts, CreatedAt: resource.Time(s.CreatedAt), UpdatedAt: resource.Time(s.UpdatedAt)}
}

func (s *secrets) secretList(c echo.Context) error {
	infos, err := s.store.SecretsList(c.Request().Context())
	if err != nil {
		return err
	}
	items := make([]secretJSON, len(infos))
	for i, info := range infos {
		items[i] = secretOf(info)
	}
	return c.JSON(http.StatusOK, newPage(items, ""))
}

// secretPut stores a value. No endpoint returns the value.
func (s *secrets) secretPut(c echo.Context) error {
	name, err := secretName(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, false)
	if err != nil {
		return err
	}
	body.required("value")
	value, ok := body.text("value")
	switch {
	case !ok:
	case value == "":
		body.wrong("value", "must not be empty")
	case len(value) > secret.MaxBytes:
		body.wrong("value", "is %d bytes long; at most %d are allowed", len(value), secret.MaxBytes)
	}
	hosts := body.hosts("hosts")
	if len(hosts) > 0 && strings.HasPrefix(name, secret.GitName("")) {
		body.wrong("hosts", "must not be given for %s, whose name contains its host", name)
	}
	if err := body.done(); err != nil {
		return err
	}
	if s.cfg.Secrets == nil {
		return failure.Errorf(failure.Unavailable, "this api has no OVERWINTER_SECRET_KEY, so it cannot encrypt secrets")
	}
	sealed := s.cfg.Secrets.Seal(name, secret.NewValue(value))
	info, created, err := s.store.SecretPut(c.Request().Context(), name, sealed, hosts...)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.JSON(status, secretOf(info))
}

func (s *secrets) secretDelete(c echo.Context) error {
	name, err := secretName(c)
	if err != nil {
		return err
	}
	if err := s.store.SecretDelete(c.Request().Context(), name); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// hosts reads the hosts that a secret is bound to.
func (o *object) hosts(name string) []string {
	raw, ok := o.take(name)
	if !ok {
		return nil
	}
	var hosts []string
	if json.Unmarshal(raw, &hosts) != nil || len(hosts) == 0 || len(hosts) > secret.MaxHosts || slices.ContainsFunc(hosts, func(h string) bool { return !secret.ValidHost(h) }) {
		o.wrong(name, "must be 1 to %d hosts in lower case, such as api.example.com or 127.0.0.1:8901", secret.MaxHosts)
		return nil
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// secretName returns the name in the path.
func secretName(c echo.Context) (string, error) {
	name := c.Param("name")
	if !secret.ValidName(name) {
		return "", invalid("name", "must be 1 to 128 of A-Z 0-9 _ with no digit first, or git:HOST[:PORT]")
	}
	return name, nil
}
