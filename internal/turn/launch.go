package turn

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/permission"
	"github.com/overwinter-dev/overwinter/internal/run"
	"github.com/overwinter-dev/overwinter/internal/runner"
	"github.com/overwinter-dev/overwinter/internal/runnerexec"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
	"github.com/overwinter-dev/overwinter/internal/transcript"
)

// launch returns the command that starts the agent for this run, after it has written the profile's
// files into the sandbox.
func (a *attempt) launch(ctx context.Context) (agent.Launch, error) {
	in := a.launchInput()
	launch, err := a.adapter.Launch(in)
	if err != nil {
		return agent.Launch{}, final(Refused, fmt.Errorf("launch %s: %w", a.start.Agent, err))
	}
	if in.Profile == nil {
		return launch, nil
	}
	files, err := profileFiles(a.adapter, in)
	if err != nil {
		return agent.Launch{}, final(Refused, err)
	}
	if err := a.installProfile(ctx, a.start.ProfileRef, files); err != nil {
		return agent.Launch{}, err
	}
	// The variables of the profile, and its version, so that another version restarts the agent.
	env := maps.Clone(in.Profile.Environment)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, launch.Env) // the adapter's variables are required, so they take precedence
	env["OVERWINTER_PROFILE"] = a.start.ProfileRef
	launch.Env = env
	if launch.Key != "" {
		launch.Key += " " + a.start.ProfileRef
	}
	return launch, nil
}

// launchInput returns the input of the adapter's Launch for this run.
func (a *attempt) launchInput() agent.LaunchInput {
	paths := runner.DefaultPaths()
	in := agent.LaunchInput{
		SessionID: cmp.Or(a.start.MemoryID, a.in.SessionID), Model: a.start.Options.Model, Home: paths.Home, Workspace: paths.Workspace,
		Resume: a.start.Resume || a.start.Run.Part > 0, Permissions: a.permissions, Profile: a.start.Profile,
	}
	if in.Model == "" && in.Profile != nil {
		in.Model = in.Profile.Model
	}
	if a.offersTools() {
		in.Tools = []string{paths.Binary, "tools"}
	}
	return in
}

// secrets opens the secrets of the agent: those that its adapter requests, if they are stored, and
// those that its profile names, which must all be stored.
func (a *attempt) secrets(ctx context.Context, wanted []string) (map[string]string, error) {
	var named []string
	if a.start.Profile != nil {
		named = a.start.Profile.Secrets
	}
	asked := slices.Concat(wanted, named)
	found, err := a.Secrets.Secrets(ctx, asked)
	if err != nil {
		return nil, fmt.Errorf("secrets of the agent: %w", err)
	}
	a.asked, a.stored = asked, found
	for _, name := range named {
		if _, ok := found[name]; !ok {
			return nil, final(Refused, fmt.Errorf("the profile names the secret %s, which is not stored", name))
		}
	}
	opened := make(map[string]string, len(found))
	for name, s := range found {
		opened[name] = s.Value.Reveal()
	}
	return opened, nil
}

// permissionsOf returns the rules of the session, followed by those of its profile.
func permissionsOf(start run.Start) permission.Rules {
	var p permission.Rules
	if start.Profile != nil {
		p = start.Profile.Permissions
	}
	if start.Options.Permissions != "" {
		p.Default = start.Options.Permissions
	}
	return p
}

// profileFiles returns the files of a profile: those that the agent reads, and those of the
// workspace, which are written once and then belong to the agent and its users.
func profileFiles(adapter agent.Adapter, in agent.LaunchInput) ([]transcript.File, error) {
	var files []transcript.File
	profiled, ok := adapter.(agent.Profiled)
	if ok {
		var err error
		if files, err = profiled.ProfileFiles(in); err != nil {
			return nil, fmt.Errorf("profile for %s: %w", adapter.Name(), err)
		}
	}
	for _, f := range in.Profile.Files {
		files = append(files, transcript.File{Path: path.Join(in.Workspace, f.Path), Data: []byte(f.Content)})
	}
	return files, nil
}

// commandTimeout bounds a command in a sandbox.
const commandTimeout = 20 * time.Second

// profileMark records in a sandbox which profile was written into it. The record is stored next to
// the runner's state, so that a restored sandbox has it too. It is read with every delivery,
// because another worker may have written another version.
type profileMark struct {
	Ref   string            `json:"ref"`
	Files map[string]string `json:"files"` // SHA-256 of the written content, by path
}

func profileMarkPath() string { return path.Join(runner.DefaultPaths().State, "profile.json") }

// installProfile writes the files of a profile into a sandbox that does not have all of them, and
// removes files of another version outside the workspace. A file of the workspace is written only
// if its content in the profile has changed, so that changes by the agent and its users survive.
// The mark is written last, so that an interrupted installation is repeated.
func (a *attempt) installProfile(ctx context.Context, ref string, files []transcript.File) error {
	mark := profileMark{Ref: ref, Files: map[string]string{}}
	for _, f := range files {
		sum := sha256.Sum256(f.Data)
		mark.Files[f.Path] = hex.EncodeToString(sum[:])
	}
	workspace := runner.DefaultPaths().Workspace + "/"
	old, whole, err := a.readProfileMark(ctx, files, workspace)
	if err != nil {
		return fmt.Errorf("look for the profile: %w", err)
	}
	if whole && old.Ref == mark.Ref && maps.Equal(old.Files, mark.Files) {
		return nil
	}
	var stale []string
	for _, p := range slices.Sorted(maps.Keys(old.Files)) {
		if _, kept := mark.Files[p]; !kept && !strings.HasPrefix(p, workspace) {
			stale = append(stale, p)
		}
	}
	if len(stale) > 0 {
		result, err := a.sandbox.Run(ctx, sandbox.RunSpec{Argv: append([]string{"rm", "-f", "--"}, stale...), Timeout: commandTimeout})
		if err == nil && result.Code != 0 {
			err = fmt.Errorf("rm ended with %d: %s", result.Code, result.Stderr)
		}
		if err != nil {
			return fmt.Errorf("take the old profile away: %w", err)
		}
	}
	data, err := json.Marshal(mark)
	if err != nil {
		return err
	}
	written := slices.DeleteFunc(slices.Clone(files), func(f transcript.File) bool {
		return strings.HasPrefix(f.Path, workspace) && old.Files[f.Path] == mark.Files[f.Path]
	})
	written = append(written, transcript.File{Path: profileMarkPath(), Data: data})
	if err := runnerexec.Put(ctx, a.sandbox, runnerexec.InMemory(written)); err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	return nil
}

// profileGap is the exit code of the command that reads the mark if a file is missing.
const profileGap = 3

// readProfileMark returns the mark, which is empty if the sandbox has none, and whether all files
// outside the workspace exist. An agent that cleans up its home directory may delete these files,
// and may not start without them.
func (a *attempt) readProfileMark(
	ctx context.Context, files []transcript.File, workspace string,
) (mark profileMark, whole bool, err error) {
	script := `[ ! -e "$1" ] || cat "$1" || exit; shift; for f; do [ -e "$f" ] || exit ` + strconv.Itoa(profileGap) + `; done`
	argv := []string{"sh", "-c", script, "mark", profileMarkPath()}
	for _, f := range files {
		if !strings.HasPrefix(f.Path, workspace) {
			argv = append(argv, f.Path)
		}
	}
	result, err := a.sandbox.Run(ctx, sandbox.RunSpec{Argv: argv, Timeout: commandTimeout, MaxOutput: 1 << 20})
	if err != nil {
		return profileMark{}, false, err
	}
	if result.Code != 0 && result.Code != profileGap || len(result.Stdout) == 0 {
		return profileMark{}, false, nil
	}
	if err := json.Unmarshal(result.Stdout, &mark); err != nil {
		a.Logger.WarnContext(ctx, "could not read the mark of a profile; writing everything again",
			slog.String("sandbox_id", a.sandbox.ID()), slog.Any("error", err))
		return profileMark{}, false, nil
	}
	return mark, result.Code == 0, nil
}
