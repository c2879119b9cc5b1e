package localmodal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/localmodal/box"
	"github.com/overwinter-dev/overwinter/internal/localmodal/task"
)

// maxBuildOutput bounds the output of a failed command that the client receives.
const maxBuildOutput = 64 << 10

// buildError is an error in the Dockerfile commands of the client.
type buildError struct{ text string }

func (e *buildError) Error() string { return e.text }

func buildErrorf(format string, args ...any) error {
	return &buildError{text: fmt.Sprintf(format, args...)}
}

func recipeOf(parentID string, commands []string, env map[string]string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q", parentID, commands)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(h, " %q=%q", name, env[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// builder executes Dockerfile commands in one box, which the first command that needs it starts.
type builder struct {
	server  *Server
	root    root
	env     map[string]string // variables of RUN commands
	task    *task.Task
	hold    *hold // holds the root's layers, and the new one
	id      string
	started int
}

// build returns an image that is not recorded yet. The caller holds its layers until it is
// recorded.
func (s *Server) build(ctx context.Context, h *hold, parent imageRecord, commands []string, env map[string]string) (imageRecord, error) {
	b := &builder{server: s, env: env, hold: h, id: newID("build"), root: root{
		Layers: parent.Root.Layers, Env: maps.Clone(parent.Root.Env), Workdir: parent.Root.Workdir,
	}}
	if b.root.Env == nil {
		b.root.Env = map[string]string{}
	}
	im, err := b.run(ctx, commands)
	if b.task != nil {
		b.close(ctx)
	}
	return im, err
}

func (b *builder) close(ctx context.Context) {
	for _, err := range []error{b.task.Close(), b.task.Release(), b.server.runtime.Discard(b.id)} {
		if err != nil {
			b.server.logger.WarnContext(ctx, "build could not be cleaned up", slog.Any("error", err))
		}
	}
}

func (b *builder) run(ctx context.Context, commands []string) (imageRecord, error) {
	for _, c := range commands {
		if err := b.step(ctx, strings.TrimSpace(c)); err != nil {
			return imageRecord{}, err
		}
	}
	if b.task == nil {
		return imageRecord{ID: newID("im"), Root: b.root, Created: time.Now()}, nil
	}
	layer := b.hold.newLayer()
	if _, err := b.task.Box.Snapshot(ctx, layer); err != nil {
		return imageRecord{}, err
	}
	return b.server.derive(ctx, b.hold, b.root, layer)
}

func (b *builder) step(ctx context.Context, command string) error {
	name, rest, _ := strings.Cut(command, " ")
	rest = strings.TrimSpace(rest)
	switch strings.ToUpper(name) {
	case "", "FROM", "LABEL", "EXPOSE", "MAINTAINER":
		return nil
	case "ENV":
		return b.setEnv(rest)
	case "WORKDIR":
		if !path.IsAbs(rest) {
			rest = path.Join("/", b.root.Workdir, rest)
		}
		b.root.Workdir = rest
		return b.exec(ctx, command, []string{"mkdir", "-p", rest}, "/")
	case "RUN":
		return b.exec(ctx, command, runArgs(rest), b.root.Workdir)
	default:
		if strings.HasPrefix(name, "#") {
			return nil
		}
		return buildErrorf("the local Modal does not know the Dockerfile command %s", strings.ToUpper(name))
	}
}

// runArgs parses both forms of RUN.
func runArgs(rest string) []string {
	var args []string
	if strings.HasPrefix(rest, "[") && json.Unmarshal([]byte(rest), &args) == nil && len(args) > 0 {
		return args
	}
	return []string{"/bin/sh", "-c", rest}
}

// setEnv parses `ENV a=1 b="2 3"` and the older `ENV a 1`.
func (b *builder) setEnv(rest string) error {
	name, value, found := strings.Cut(rest, " ")
	if found && !strings.Contains(name, "=") {
		b.root.Env[name] = strings.TrimSpace(value)
		return nil
	}
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		name, value, found := strings.Cut(rest, "=")
		if !found || name == "" {
			return buildErrorf("cannot read ENV %s", rest)
		}
		b.root.Env[name], rest = cutValue(value)
	}
	return nil
}

// cutValue cuts one value, quoted or not, from the beginning of text.
func cutValue(text string) (value, rest string) {
	var out strings.Builder
	quote := rune(0)
	escaped := false
	for i, r := range text {
		switch {
		case escaped:
			out.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped = true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == 0 && (r == ' ' || r == '\t'):
			return out.String(), text[i:]
		default:
			out.WriteRune(r)
		}
	}
	return out.String(), ""
}

func (b *builder) exec(ctx context.Context, command string, args []string, workdir string) error {
	if b.task == nil {
		bx, err := b.server.runtime.Start(ctx, box.Spec{ID: b.id, Layers: b.root.Layers})
		if err != nil {
			return err
		}
		b.task = task.New(task.Options{Box: bx, Scratch: b.server.scratch()})
	}
	env := maps.Clone(b.root.Env)
	maps.Copy(env, b.env)
	b.started++
	e, err := b.task.Start(fmt.Sprint(b.started), task.Command{Args: args, Env: env, Workdir: workdir})
	if err != nil {
		return buildErrorf("%s: %v", command, err)
	}
	if err := e.Write(ctx, 0, nil, true); err != nil {
		b.server.logger.DebugContext(ctx, "build command has ended before its input was closed", slog.Any("error", err))
	}
	select {
	case <-e.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	if code, signal := e.Exit(); code != 0 || signal != 0 {
		return buildErrorf("%s: exit code %d, signal %d\n%s%s", command, code, signal, tail(ctx, e.Stdout), tail(ctx, e.Stderr))
	}
	return nil
}

// tail returns the end of a finished stream.
func tail(ctx context.Context, o *task.Output) []byte {
	var kept bytes.Buffer
	err := o.Follow(ctx, 0, func(_ uint64, p []byte) error {
		kept.Write(p)
		if excess := kept.Len() - maxBuildOutput; excess > 0 {
			_, err := io.CopyN(io.Discard, &kept, int64(excess))
			return err
		}
		return nil
	})
	if err != nil {
		fmt.Fprintf(&kept, "\n(output incomplete: %v)", err)
	}
	return kept.Bytes()
}
