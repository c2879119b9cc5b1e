package apiclient

import (
	"context"
	"encoding/json"
	"fmt"
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

// maxVersions bounds the versions that ProfileVersions reads.
const maxVersions = 100

// ProfileVersions reads the versions of a profile, newest first, at most 100.
func (c *Client) ProfileVersions(ctx context.Context, idOrName string) (Page[json.RawMessage], error) {
	newest, err := c.ProfileGet(ctx, idOrName, 0)
	if err != nil {
		return Page[json.RawMessage]{}, err
	}
	var p struct {
		ID      string `json:"id"`
		Version int64  `json:"version"`
	}
	if err := json.Unmarshal(newest, &p); err != nil {
		return Page[json.RawMessage]{}, fmt.Errorf("read profile: %w", err)
	}
	page := Page[json.RawMessage]{Items: []json.RawMessage{newest}}
	for version := p.Version - 1; version > 0 && len(page.Items) < maxVersions; version-- {
		older, err := c.ProfileGet(ctx, p.ID, version) // by ID: another profile may get the name
		if err != nil {
			return Page[json.RawMessage]{}, err
		}
		page.Items = append(page.Items, older)
	}
	return page, nil
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
