package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/overwinter-dev/overwinter/client"
	"github.com/overwinter-dev/overwinter/internal/profile"
	"github.com/overwinter-dev/overwinter/internal/terminal"
)

// profileCmd manages profiles.
type profileCmd struct {
	apiFlags
	List     profileListCmd     `cmd:"" help:"List the profiles, newest first."`
	Show     profileShowCmd     `cmd:"" help:"Print a profile as JSON."`
	Create   profileCreateCmd   `cmd:"" help:"Create a profile from a JSON file."`
	Update   profileUpdateCmd   `cmd:"" help:"Store a new version of a profile from a JSON file, such as the edited output of show."`
	Delete   profileDeleteCmd   `cmd:"" help:"Delete a profile; sessions keep the versions that they use."`
	Versions profileVersionsCmd `cmd:"" help:"List the versions of a profile, newest first."`
}

// shownProfile has the fields of a profile that tables show.
type shownProfile struct {
	ID          string      `json:"id"`
	Name        string      `json:"name"`
	Description string      `json:"description"`
	Version     int64       `json:"version"`
	Ref         string      `json:"ref"`
	UpdatedAt   client.Time `json:"updatedAt"`
}

func profileOf(raw json.RawMessage) (p shownProfile, err error) {
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("read profile: %w", err)
	}
	return p, nil
}

// printProfiles writes one line for each profile.
func (c *apiFlags) printProfiles(w io.Writer, page client.Page[json.RawMessage]) error {
	if c.json() {
		return printJSON(w, page)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tVERSION\tREF\tUPDATED\tDESCRIPTION") // Flush returns the error
	for _, raw := range page.Items {
		p, err := profileOf(raw)
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\n", p.Name, p.Version, p.Ref, c.when(p.UpdatedAt), terminal.OneLine(p.Description, terminal.TitleRunes))
	}
	return t.Flush()
}

// printProfile writes one profile.
func (c *apiFlags) printProfile(w io.Writer, raw json.RawMessage) error {
	if c.json() {
		return printJSON(w, raw)
	}
	p, err := profileOf(raw)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s  version %d, %s\n", p.Name, p.Version, p.Ref)
	return err
}

// profileListCmd lists profiles.
type profileListCmd struct{}

// Run prints one line for each profile.
func (profileListCmd) Run(ctx context.Context, s streams, parent *profileCmd) error {
	return parent.with(func(api *client.Client) error {
		page, err := api.ProfileList(ctx)
		if err != nil {
			return err
		}
		return parent.printProfiles(s.stdout, page)
	})
}

// profileArg names a profile.
type profileArg struct {
	Profile string `arg:"" help:"ID or name of the profile."`
}

// profileShowCmd prints a profile.
type profileShowCmd struct {
	Profile string `arg:"" help:"ID or name of the profile; @VERSION after it selects a version."`
}

// Run prints JSON in both formats, because a profile is a document.
func (c *profileShowCmd) Run(ctx context.Context, s streams, parent *profileCmd) error {
	name, version, err := profile.ParseRef(c.Profile)
	if err != nil {
		return usageError{err.Error()}
	}
	return parent.with(func(api *client.Client) error {
		raw, err := api.ProfileGet(ctx, name, version)
		if err != nil {
			return err
		}
		return printJSON(s.stdout, raw)
	})
}

// profileVersionsCmd lists versions.
type profileVersionsCmd struct{ profileArg }

// Run prints one line for each version.
func (c *profileVersionsCmd) Run(ctx context.Context, s streams, parent *profileCmd) error {
	return parent.with(func(api *client.Client) error {
		page, err := api.ProfileVersions(ctx, c.Profile)
		if err != nil {
			return err
		}
		if parent.json() {
			return printJSON(s.stdout, page)
		}
		t := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "VERSION\tREF\tCREATED") // Flush returns the error
		for _, v := range page.Items {
			fmt.Fprintf(t, "%d\t%s\t%s\n", v.Version, v.Ref, parent.when(v.CreatedAt))
		}
		return t.Flush()
	})
}

// profileCreateCmd creates a profile.
type profileCreateCmd struct {
	File string `arg:"" optional:"" default:"-" help:"JSON file with the name and the content, as the body of POST /api/profiles; - reads standard input. Default ${default}."`
}

// Run prints the new profile.
func (c *profileCreateCmd) Run(ctx context.Context, s streams, parent *profileCmd) error {
	fields, err := profileFile(c.File, s.stdin)
	if err != nil {
		return err
	}
	delete(fields, "version")
	return parent.with(func(api *client.Client) error {
		raw, err := api.ProfileCreate(ctx, fields)
		if err != nil {
			return err
		}
		return parent.printProfile(s.stdout, raw)
	})
}

// profileUpdateCmd stores the next version of a profile.
type profileUpdateCmd struct {
	profileArg
	File string `arg:"" optional:"" default:"-" help:"JSON file with the whole profile; - reads standard input. If it has a version, the update is refused unless that is the newest. Default ${default}."`
}

// Run prints the updated profile.
func (c *profileUpdateCmd) Run(ctx context.Context, s streams, parent *profileCmd) error {
	fields, err := profileFile(c.File, s.stdin)
	if err != nil {
		return err
	}
	return parent.with(func(api *client.Client) error {
		raw, err := api.ProfileUpdate(ctx, c.Profile, fields)
		if err != nil {
			return err
		}
		return parent.printProfile(s.stdout, raw)
	})
}

// profileDeleteCmd deletes a profile.
type profileDeleteCmd struct{ profileArg }

// Run deletes the profile and prints a confirmation.
func (c *profileDeleteCmd) Run(ctx context.Context, s streams, parent *profileCmd) error {
	return parent.with(func(api *client.Client) error {
		if err := api.ProfileDelete(ctx, c.Profile); err != nil || parent.json() {
			return err
		}
		_, err := fmt.Fprintf(s.stdout, "%s  deleted\n", c.Profile)
		return err
	})
}

// maxProfileBytes is larger than the limit of the API.
const maxProfileBytes = 16 << 20

// profileFile reads a profile without the fields that the API sets, so that the output of show can
// be sent again.
func profileFile(path string, stdin io.Reader) (map[string]json.RawMessage, error) {
	from := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("read profile: %w", err)
		}
		defer file.Close()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, maxProfileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read profile: %w", err)
	}
	if len(data) > maxProfileBytes {
		return nil, fmt.Errorf("the profile is larger than %d bytes", maxProfileBytes)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("the profile must be a JSON object: %w", err)
	}
	if fields == nil {
		return nil, errors.New("the profile must be a JSON object, not null")
	}
	for _, name := range []string{"id", "ref", "createdAt", "updatedAt"} {
		delete(fields, name)
	}
	return fields, nil
}
