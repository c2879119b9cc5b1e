package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/secret"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/wire"
)

// secretJSON is what is shown of a secret: never its value.
type secretJSON struct {
	Name      string    `json:"name"`
	CreatedAt wire.Time `json:"createdAt"`
	UpdatedAt wire.Time `json:"updatedAt"`
}

func secretOf(s session.SecretInfo) secretJSON {
	return secretJSON{Name: s.Name, CreatedAt: wire.Time(s.CreatedAt), UpdatedAt: wire.Time(s.UpdatedAt)}
}

func (s *Server) secretList(c echo.Context) error {
	infos, err := s.cfg.Store.SecretsList(c.Request().Context())
	if err != nil {
		return err
	}
	items := make([]secretJSON, len(infos))
	for i, info := range infos {
		items[i] = secretOf(info)
	}
	return c.JSON(http.StatusOK, newPage(items, ""))
}

// secretPut stores a value that no call returns again.
func (s *Server) secretPut(c echo.Context) error {
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
		body.fault("value", "must not be empty")
	case len(value) > secret.MaxBytes:
		body.fault("value", "is %d bytes long; at most %d are allowed", len(value), secret.MaxBytes)
	}
	if err := body.done(); err != nil {
		return err
	}
	if s.cfg.Secrets == nil {
		return session.Faultf(session.CodeUnavailable, "this api has no OVERWINTER_SECRET_KEY, so it cannot seal secrets")
	}
	sealed := s.cfg.Secrets.Seal(name, secret.NewValue(value))
	info, created, err := s.cfg.Store.SecretPut(c.Request().Context(), name, sealed)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.JSON(status, secretOf(info))
}

func (s *Server) secretDelete(c echo.Context) error {
	name, err := secretName(c)
	if err != nil {
		return err
	}
	if err := s.cfg.Store.SecretDelete(c.Request().Context(), name); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// secretName is the name in the path.
func secretName(c echo.Context) (string, error) {
	name := c.Param("name")
	if !secret.ValidName(name) {
		return "", invalid("name", "must be 1 to 128 of A-Z 0-9 _ with no digit first, or git:HOST[:PORT]")
	}
	return name, nil
}
