package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/client"
)

// sessionUpdateCmd changes a session.
type sessionUpdateCmd struct {
	sessionArg
	Title           *string           `placeholder:"TEXT" help:"New title."`
	IdleTimeout     string            `placeholder:"DURATION" help:"New idle time before the session hibernates, such as 30s."`
	Model           *string           `placeholder:"NAME" help:"Model for the next turns; an empty text is the agent's choice."`
	Permissions     string            `enum:"allow,ask,deny," default:"" placeholder:"POLICY" help:"Policy for the agent's tools: allow, ask or deny."`
	QuestionTimeout time.Duration     `placeholder:"DURATION" help:"How long a question of the agent waits for its answer."`
	Checkpoint      string            `placeholder:"WHEN" help:"When to save a bundle of the awake session: hibernate (not at all), turn, or a duration."`
	Profile         string            `placeholder:"NAME" help:"ID or name of a profile, in its newest version; @VERSION after it selects another."`
	Metadata        map[string]string `mapsep:"none" placeholder:"KEY=VALUE" help:"Member of the metadata to set, or to remove if the value is empty; can be repeated. Other members stay."`
	Repo            string            `placeholder:"URL" help:"Repository to clone instead; https or http. Only for a session in error whose workspace was not set up; recover then sets it up."`
	Ref             string            `placeholder:"NAME" help:"Branch, tag or commit to clone. Only for a session in error."`
	Setup           string            `placeholder:"SCRIPT" help:"Setup script to run instead; @FILE reads it from a file. Only for a session in error."`
}

// Run prints the updated session.
func (c *sessionUpdateCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		now, err := api.SessionGet(ctx, id)
		if err != nil {
			return err
		}
		patch, err := c.patch(now)
		if err != nil {
			return err
		}
		if len(patch) == 0 {
			return usageError{"nothing to change: give --title or another flag"}
		}
		got, err := api.SessionPatch(ctx, id, patch)
		if err != nil {
			return err
		}
		return parent.printSession(s.stdout, got)
	})
}

// patch returns the request body: the API replaces options, metadata and workspace as a whole.
func (c *sessionUpdateCmd) patch(now client.Session) (map[string]any, error) {
	patch := map[string]any{}
	if c.Title != nil {
		patch["title"] = *c.Title
	}
	if c.IdleTimeout != "" {
		patch["idleTimeout"] = c.IdleTimeout
	}
	if c.Profile != "" {
		patch["profile"] = c.Profile
	}
	options := now.Options
	if c.Model != nil {
		options.Model = *c.Model
	}
	if c.Permissions != "" {
		options.Permissions = client.Policy(c.Permissions)
	}
	if c.QuestionTimeout != 0 {
		options.QuestionTimeout = client.Duration(c.QuestionTimeout)
	}
	if c.Checkpoint != "" {
		options.Checkpoint = c.Checkpoint
	}
	if options != now.Options {
		patch["options"] = options
	}
	if len(c.Metadata) > 0 {
		metadata := map[string]any{}
		if err := json.Unmarshal(now.Metadata, &metadata); err != nil {
			return nil, fmt.Errorf("read metadata: %w", err)
		}
		for key, value := range c.Metadata {
			if metadata[key] = value; value == "" {
				delete(metadata, key)
			}
		}
		patch["metadata"] = metadata
	}
	var workspace client.Workspace
	if now.Workspace != nil {
		workspace = *now.Workspace
	}
	before := workspace
	if c.Repo != "" {
		workspace.RepoURL = c.Repo
	}
	if c.Ref != "" {
		workspace.Ref = c.Ref
	}
	if c.Setup != "" {
		script, err := scriptText(c.Setup)
		if err != nil {
			return nil, err
		}
		workspace.Setup = script
	}
	if workspace != before {
		patch["workspace"] = workspace
	}
	return patch, nil
}

// sessionOpenCmd prints the addresses of a session.
type sessionOpenCmd struct {
	sessionArg
	TemporalUI string `name:"temporal-ui" env:"OVERWINTER_TEMPORAL_UI" default:"http://127.0.0.1:8233" placeholder:"URL" help:"URL of Temporal's UI. Default ${default}."`
	Namespace  string `env:"TEMPORAL_NAMESPACE" default:"default" placeholder:"NAME" help:"Namespace in Temporal. Default ${default}."`
	Browser    bool   `help:"Also open Temporal's UI in a browser."`
}

// links are the addresses of a session.
type links struct {
	Temporal string `json:"temporal"`
	API      string `json:"api"`
}

// Run prints the addresses.
func (c *sessionOpenCmd) Run(ctx context.Context, s streams, parent *sessionCmd) error {
	return parent.on(ctx, c.sessionArg, func(api *client.Client, id string) error {
		if _, err := api.SessionGet(ctx, id); err != nil {
			return err
		}
		at := links{Temporal: temporalURL(c.TemporalUI, c.Namespace, id), API: api.SessionURL(id)}
		var err error
		if parent.json() {
			err = printJSON(s.stdout, at)
		} else {
			_, err = fmt.Fprintf(s.stdout, "Temporal  %s\nAPI       %s\n", at.Temporal, at.API)
		}
		if c.Browser {
			err = errors.Join(err, openBrowser(ctx, at.Temporal))
		}
		return err
	})
}
