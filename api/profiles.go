package api

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// profileStore stores profiles.
type profileStore interface {
	// ProfileList returns profiles, newest first, each in its newest version.
	ProfileList(ctx context.Context, limit int, cursor string) (items []profile.Profile, nextCursor string, err error)
	// ProfileGet finds a profile by id or name; version 0 means the newest version.
	ProfileGet(ctx context.Context, idOrName string, version int64) (profile.Profile, error)
	// ProfileVersions returns the versions of a profile, newest first.
	ProfileVersions(ctx context.Context, idOrName string, limit int, cursor string) (items []profile.Version, nextCursor string, err error)
	// ProfileCreate stores version 1 of a profile. Error: name_taken if the name is in use.
	ProfileCreate(ctx context.Context, p profile.Profile) (profile.Profile, error)
	// ProfileUpdate stores the next version of a profile. Error: version_conflict if version is
	// neither 0 nor the newest version.
	ProfileUpdate(ctx context.Context, p profile.Profile, version int64) (profile.Profile, error)
	// ProfileDelete deletes a profile. Sessions keep the versions that they use.
	ProfileDelete(ctx context.Context, id string) error
}

// profiles are the routes of profiles.
type profiles struct {
	*Server
	store profileStore
}

// profileJSON is a profile as clients see it.
type profileJSON struct {
	ID          string        `json:"id"`
	Name        string        `json:"name"`
	Description string        `json:"description,omitempty"`
	Version     int64         `json:"version"`
	Ref         string        `json:"ref"` // the reference in sessions that use this version
	CreatedAt   resource.Time `json:"createdAt"`
	UpdatedAt   resource.Time `json:"updatedAt"`
	profile.Spec
}

func profileOf(p profile.Profile) profileJSON {
	return profileJSON{
		ID: p.ID, Name: p.Name, Description: p.Description, Version: p.Version, Ref: p.Ref(),
		CreatedAt: resource.Time(p.CreatedAt), UpdatedAt: resource.Time(p.UpdatedAt), Spec: p.Spec,
	}
}

// profileID returns the id or name in the path.
func profileID(c echo.Context) (string, error) {
	id := c.Param("profileId")
	if strings.Contains(id, "/") {
		return "", echo.ErrNotFound
	}
	if !session.ValidID(session.ProfilePrefix, id) && !profile.ValidName(id) {
		return "", invalid("profileId", "must be %s and 32 lower-case hexadecimal digits, or the name of a profile", session.ProfilePrefix)
	}
	return id, nil
}

// profileVersionID returns the id or name in the path, and the version that follows it as in the
// profile of a session, or 0.
func profileVersionID(c echo.Context) (id string, version int64, err error) {
	ref := c.Param("profileId")
	if strings.Contains(ref, "/") {
		return "", 0, echo.ErrNotFound
	}
	id, version, err = profile.ParseRef(ref)
	if err != nil || !session.ValidID(session.ProfilePrefix, id) && !profile.ValidName(id) {
		return "", 0, invalid("profileId", "must be %s and 32 lower-case hexadecimal digits, or the name of a profile; @ and a version may follow", session.ProfilePrefix)
	}
	return id, version, nil
}

func (s *profiles) profileList(c echo.Context) error {
	limit, cursor, err := listQuery(c)
	if err != nil {
		return err
	}
	view := c.QueryParam("view")
	if view != "" && view != viewSummary && view != viewFull {
		return invalid("view", "must be %s or %s", viewSummary, viewFull)
	}
	profiles, next, err := s.store.ProfileList(c.Request().Context(), limit, cursor)
	if err != nil {
		return err
	}
	items := make([]profileJSON, len(profiles))
	for i, p := range profiles {
		if view != viewFull {
			p.Spec = profile.Spec{Model: p.Spec.Model}
		}
		items[i] = profileOf(p)
	}
	return c.JSON(http.StatusOK, newPage(items, next))
}

// The views of a list of profiles.
const (
	viewSummary = "summary" // without texts
	viewFull    = "full"
)

// profileVersion is one version of a profile as clients see it in a list.
type profileVersion struct {
	Version   int64         `json:"version"`
	Ref       string        `json:"ref"`
	CreatedAt resource.Time `json:"createdAt"`
}

func (s *profiles) profileVersions(c echo.Context) error {
	id, err := profileID(c)
	if err != nil {
		return err
	}
	limit, cursor, err := listQuery(c)
	if err != nil {
		return err
	}
	versions, next, err := s.store.ProfileVersions(c.Request().Context(), id, limit, cursor)
	if err != nil {
		return err
	}
	items := make([]profileVersion, len(versions))
	for i, v := range versions {
		items[i] = profileVersion{Version: v.Version, Ref: v.Ref(), CreatedAt: resource.Time(v.CreatedAt)}
	}
	return c.JSON(http.StatusOK, newPage(items, next))
}

func (s *profiles) profileGet(c echo.Context) error {
	id, version, err := profileVersionID(c)
	if err != nil {
		return err
	}
	if text := c.QueryParam("version"); text != "" {
		if version != 0 {
			return invalid("version", "must not be given with profileId@VERSION")
		}
		if version, err = strconv.ParseInt(text, 10, 64); err != nil || version < 1 {
			return invalid("version", "must be a positive integer")
		}
	}
	p, err := s.store.ProfileGet(c.Request().Context(), id, version)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, profileOf(p))
}

func (s *profiles) profileCreate(c echo.Context) error {
	body, _, err := readBody(c, false)
	if err != nil {
		return err
	}
	body.required("name")
	p := body.profile()
	if err := body.done(); err != nil {
		return err
	}
	p.ID = session.NewID(session.ProfilePrefix)
	if p, err = s.store.ProfileCreate(c.Request().Context(), p); err != nil {
		return err
	}
	c.Response().Header().Set(echo.HeaderLocation, "/api/profiles/"+p.ID)
	return c.JSON(http.StatusCreated, profileOf(p))
}

// profilePut stores the next version of a profile, which the request replaces as a whole.
func (s *profiles) profilePut(c echo.Context) error {
	id, err := profileID(c)
	if err != nil {
		return err
	}
	body, _, err := readBody(c, false)
	if err != nil {
		return err
	}
	body.required("name")
	p := body.profile()
	version, given := body.number("version")
	if given && version < 1 {
		body.wrong("version", "must be a positive integer: the newest version that you have read")
	}
	if err := body.done(); err != nil {
		return err
	}
	ctx := c.Request().Context()
	known, err := s.store.ProfileGet(ctx, id, 0)
	if err != nil {
		return err
	}
	p.ID = known.ID
	if p, err = s.store.ProfileUpdate(ctx, p, version); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, profileOf(p))
}

func (s *profiles) profileDelete(c echo.Context) error {
	id, err := profileID(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	known, err := s.store.ProfileGet(ctx, id, 0)
	if err != nil {
		return err
	}
	if err := s.store.ProfileDelete(ctx, known.ID); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// profile reads a profile: its name, its description and the configuration of agents.
func (o *object) profile() profile.Profile {
	var p profile.Profile
	if name, ok := o.text("name"); ok {
		if p.Name = name; !profile.ValidName(name) {
			o.wrong("name", "must be 1 to 100 of A-Z a-z 0-9 space . _ - and not look like an id")
		}
	}
	p.Description, _ = o.short("description", profile.MaxDescription)
	spec := map[string]json.RawMessage{}
	for _, name := range []string{
		"instructions", "skills", "subagents", "commands", "mcpServers", "overwinterTools", "files", "model", "environment", "secrets", "permissions",
	} {
		if raw, ok := o.take(name); ok {
			spec[name] = raw
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spec)) {
		one, err := json.Marshal(map[string]json.RawMessage{name: spec[name]})
		if err == nil {
			dec := json.NewDecoder(bytes.NewReader(one))
			dec.DisallowUnknownFields()
			err = dec.Decode(&p.Spec)
		}
		if err != nil || string(spec[name]) == "null" || !utf8.Valid(spec[name]) {
			o.wrong(name, "%s", wrongShape(name, err))
		} else if bytes.Contains(spec[name], []byte(`\u0000`)) {
			o.wrong(name, "must not contain the character U+0000")
		}
	}
	for _, f := range p.Spec.Check() {
		o.wrong(f.Field, "%s", f.Message)
	}
	return p
}

// wrongShape describes a decoder's error without the names of Go types.
func wrongShape(name string, err error) string {
	if err != nil {
		if _, field, ok := strings.Cut(err.Error(), "unknown field "); ok {
			return "has an unknown field: " + strings.Trim(field, `"`)
		}
	}
	return "does not match the schema in the API document for " + name
}

// profileRef reads the profile of a session: an id, a name, or ID@VERSION.
func (o *object) profileRef(name string) (ref string, ok bool) { //nolint:unparam // as the other fields
	if ref, ok = o.text(name); !ok {
		return "", false
	}
	named, _, err := profile.ParseRef(ref)
	if err != nil || !session.ValidID(session.ProfilePrefix, named) && !profile.ValidName(named) {
		o.wrong(name, "must be the id or the name of a profile, optionally followed by @ and a version")
		return "", false
	}
	return ref, true
}
