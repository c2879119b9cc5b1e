package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
)

func profilePath(idOrName string) string { return "/api/profiles/" + url.PathEscape(idOrName) }

// AgentList lists the agents that sessions can be created with, as the API describes them.
func (c *Client) AgentList(ctx context.Context) (page Page[json.RawMessage], err error) {
	_, err = c.call(ctx, http.MethodGet, "/api/agents", nil, &page)
	return page, err
}

// ProfileList lists profiles, newest first, each in its newest version.
func (c *Client) ProfileList(ctx context.Context) (Page[json.RawMessage], error) {
	return list[json.RawMessage](ctx, c, "/api/profiles", nil, 0)
}

// ProfileGet reads a profile by ID or name, in its newest version if version is 0.
func (c *Client) ProfileGet(ctx context.Context, idOrName string, version int64) (raw json.RawMessage, err error) {
	path := profilePath(idOrName)
	if version > 0 {
		path += "?version=" + strconv.FormatInt(version, 10)
	}
	_, err = c.call(ctx, http.MethodGet, path, nil, &raw)
	return raw, err
}

// ProfileVersions lists the versions of a profile, newest first.
func (c *Client) ProfileVersions(ctx context.Context, idOrName string) (Page[ProfileVersion], error) {
	return list[ProfileVersion](ctx, c, profilePath(idOrName)+"/versions", nil, 0)
}

// ProfileVersion is one version of a profile.
type ProfileVersion struct {
	Version   int64  `json:"version"`
	Ref       string `json:"ref"`
	CreatedAt Time   `json:"createdAt"`
}

// ProfileCreate stores version 1 of a profile.
func (c *Client) ProfileCreate(ctx context.Context, body any) (raw json.RawMessage, err error) {
	_, err = c.call(ctx, http.MethodPost, "/api/profiles", body, &raw)
	return raw, err
}

// ProfileUpdate stores the next version of a profile.
func (c *Client) ProfileUpdate(ctx context.Context, idOrName string, body any) (raw json.RawMessage, err error) {
	_, err = c.call(ctx, http.MethodPut, profilePath(idOrName), body, &raw)
	return raw, err
}

// ProfileDelete deletes a profile.
func (c *Client) ProfileDelete(ctx context.Context, idOrName string) error {
	_, err := c.call(ctx, http.MethodDelete, profilePath(idOrName), nil, new([]byte))
	return err
}
