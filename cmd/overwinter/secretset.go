package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/cli"
	"github.com/overwinter-dev/overwinter/internal/secret"
)

// secretListCmd lists secrets.
type secretListCmd struct{ apiFlags }

// Run prints one line for each secret.
func (c *secretListCmd) Run(ctx context.Context, s streams) error {
	return c.with(func(api *client.Client) error {
		page, err := api.SecretList(ctx)
		if err != nil {
			return err
		}
		if c.json() {
			return printJSON(s.stdout, page)
		}
		t := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "NAME\tHOSTS\tUPDATED") // Flush returns the error
		for _, info := range page.Items {
			fmt.Fprintf(t, "%s\t%s\t%s\n", info.Name, strings.Join(info.Hosts, " "), c.when(info.UpdatedAt))
		}
		return t.Flush()
	})
}

// secretSetCmd stores a secret. The value is not an argument, because other users can read
// arguments.
type secretSetCmd struct {
	apiFlags
	Name string   `arg:"" help:"Name of the secret, such as ANTHROPIC_API_KEY; git:HOST for the credentials of a git host, as USER:PASSWORD."`
	Host []string `placeholder:"HOST" help:"Host that the secret is bound to, such as api.example.com; can be repeated. Default: the hosts that overwinter knows for the name."`
}

// Run prints the stored secret without its value.
func (c *secretSetCmd) Run(ctx context.Context, s streams) error {
	value, err := secretText(c.Name, s)
	if err != nil {
		return err
	}
	return c.with(func(api *client.Client) error {
		info, err := api.SecretPut(ctx, c.Name, value.Reveal(), c.Host)
		if err != nil {
			return err
		}
		if c.json() {
			return printJSON(s.stdout, info)
		}
		_, err = fmt.Fprintf(s.stdout, "%s  stored\n", info.Name)
		return err
	})
}

// secretText reads a value: one line without echo from a terminal, or everything except the final
// newline from a pipe or a file.
func secretText(name string, s streams) (secret.Value, error) {
	var data []byte
	var err error
	if file, ok := s.stdin.(*os.File); ok && cli.IsTerminal(file) {
		restore, hidden := cli.HideInput(file) // before the prompt, so that early input is not shown
		if hidden != nil {
			return secret.Value{}, hidden
		}
		if _, err = fmt.Fprintf(s.stderr, "value of %s: ", name); err == nil {
			data, err = term.ReadPassword(int(file.Fd()))
		}
		err = errors.Join(err, restore())
		fmt.Fprintln(s.stderr) // the newline was not echoed either
	} else {
		data, err = io.ReadAll(io.LimitReader(s.stdin, secret.MaxBytes+2))
	}
	if err != nil {
		return secret.Value{}, fmt.Errorf("read value of %s: %w", name, err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case text == "":
		return secret.Value{}, errors.New("the value of " + name + " is empty: pass it on standard input")
	case len(text) > secret.MaxBytes:
		return secret.Value{}, fmt.Errorf("the value of %s is larger than %d bytes", name, secret.MaxBytes)
	}
	return secret.NewValue(text), nil
}

// secretDeleteCmd deletes a secret.
type secretDeleteCmd struct {
	apiFlags
	Name string `arg:"" help:"Name of the secret."`
}

// Run deletes the secret and prints a confirmation.
func (c *secretDeleteCmd) Run(ctx context.Context, s streams) error {
	return c.with(func(api *client.Client) error {
		if err := api.SecretDelete(ctx, c.Name); err != nil || c.json() {
			return err
		}
		_, err := fmt.Fprintf(s.stdout, "%s  deleted\n", c.Name)
		return err
	})
}
