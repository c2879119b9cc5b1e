package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// apiFlags are the flags of commands that call the API.
type apiFlags struct {
	APIURL   string       `name:"api-url" env:"OVERWINTER_API_URL" default:"http://127.0.0.1:8080" placeholder:"URL" help:"URL of the API. Default ${default}."`
	APIKey   secret.Value `name:"api-key" env:"OVERWINTER_API_KEY" placeholder:"KEY" help:"API key. Prefer OVERWINTER_API_KEY: other users can read arguments."`
	Output   string       `short:"o" enum:"table,json" default:"table" placeholder:"FORMAT" help:"Output format: table, or json as the API sends it. Default ${default}."`
	Absolute bool         `help:"Show times in tables as timestamps instead of relative to now."`
}

// flagsOfAPI returns the flags from the command that embeds them.
func (c *apiFlags) flagsOfAPI() *apiFlags { return c }

// apiFlagsOf returns the flags of a command that calls the API; nil for others.
func apiFlagsOf(command *kong.Context) *apiFlags {
	for _, part := range command.Path {
		if part.Command == nil {
			continue
		}
		if holder, ok := part.Command.Target.Addr().Interface().(interface{ flagsOfAPI() *apiFlags }); ok {
			return holder.flagsOfAPI()
		}
	}
	return nil
}

// Validate checks the address before any request.
func (c *apiFlags) Validate() error {
	api, err := c.client()
	if err != nil {
		return err
	}
	api.Close()
	return nil
}

// warnPlain logs a warning if the key is sent in clear text.
func (c *apiFlags) warnPlain(logger *slog.Logger) {
	u, err := url.Parse(c.APIURL)
	if c.APIKey.Empty() || err != nil || u.Scheme != "http" || loopbackHost(u.Host) {
		return
	}
	logger.Warn("the API key is sent in clear text; use https:// unless the network is trusted", slog.String("host", u.Host))
}

func (c *apiFlags) client() (*client.Client, error) {
	return client.New(c.APIURL, c.APIKey.Reveal())
}

// json reports whether the output is for programs.
func (c *apiFlags) json() bool { return c.Output == "json" }

// with calls use with a client and closes it.
func (c *apiFlags) with(use func(*client.Client) error) error {
	api, err := c.client()
	if err != nil {
		return usageError{err.Error()}
	}
	defer api.Close()
	err = use(api)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no server listens at %s: start overwinter, or pass its address with --api-url", c.APIURL)
	}
	return err
}

// printJSON writes v indented.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
