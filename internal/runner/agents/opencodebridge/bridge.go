package opencodebridge

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/overwinter-dev/overwinter/internal/agent/opencode/opencodeformat"
	"github.com/overwinter-dev/overwinter/internal/agent/stdio"
	"github.com/overwinter-dev/overwinter/internal/runner/bridge"
)

// The retry limits. OpenCode itself retries forever.
const (
	defaultRetries = 10
	defaultTimeout = 5 * time.Minute
)

var errConfig = errors.New("the secret " + opencodeformat.SecretConfig + " is no JSON object")

// Main runs the bridge: it serves commands from stdin, with its own OpenCode server, until stdin is
// closed, and returns the exit code. The workspace is the working directory.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet(opencodeformat.Command, flag.ContinueOnError)
	flags.SetOutput(stderr)
	b := driver{
		out: bridge.NewOutput(stdout), stderr: stderr, incomplete: map[string]bool{},
		lookEvery: lookEvery, silence: silenceTimeout,
	}
	flags.StringVar(&b.program, "program", opencodeformat.Binary, "OpenCode itself")
	flags.StringVar(&b.store.dir, "transcripts", "", "directory for the saved sessions")
	flags.StringVar(&b.model, "model", "", "model of the prompts, as provider/model; OpenCode's choice when empty")
	flags.IntVar(&b.retries, "retries", defaultRetries, "attempts to reach the model before the turn fails")
	timeout := bridge.ModelTimeout(flags, defaultTimeout)
	if err := flags.Parse(args); err != nil {
		return bridge.ExitUsage
	}
	b.timeout = *timeout
	if b.store.dir == "" {
		fmt.Fprintln(stderr, "opencode bridge: --transcripts is needed")
		return bridge.ExitUsage
	}
	var err error
	if b.config, err = withSecrets(os.Getenv(opencodeformat.SettingsVariable), os.Getenv); err != nil {
		// The cause may contain parts of a secret.
		fmt.Fprintln(stderr, "opencode bridge: the configuration cannot be read")
		if errors.Is(err, errConfig) {
			fmt.Fprintln(stderr, err)
		}
		return bridge.ExitUsage
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(errStopped)
	return b.run(ctx, stdin)
}

var errStopped = errors.New("the bridge ends")

// driver is the bridge with its server, its session and the turn in progress. It is used by one
// goroutine.
type driver struct {
	program string
	model   string
	config  []byte
	retries int
	timeout time.Duration
	out     *bridge.Output
	stderr  io.Writer

	server *server
	store  store
	root   string // id of the session
	title  string
	turn   *running
	queue  []stdio.Command // prompts that arrived during a turn
	// incomplete are the ids of answers in progress.
	incomplete map[string]bool
	// lookEvery is how often the bridge asks the agent whether it is busy. silence is how long the
	// agent may not respond.
	lookEvery, silence time.Duration
	why                string // why the bridge stopped the agent
}

// tick is how often the bridge checks for work that no event announces.
const tick = 250 * time.Millisecond

func (b *driver) run(ctx context.Context, stdin io.Reader) int {
	if err := b.start(ctx); err != nil {
		fmt.Fprintf(b.stderr, "opencode bridge: %v\n", err)
		b.out.Note(stdio.Note{Type: stdio.NoteDied, Message: err.Error()})
		return bridge.ExitFailed
	}
	saving, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { b.store.keepSaving(saving, b.server, b.stderr) })
	code := b.serve(ctx, stdin)
	stop()
	done.Wait()
	if code != bridge.ExitDied {
		if err := b.store.save(ctx, b.server); err != nil {
			fmt.Fprintf(b.stderr, "opencode bridge: %v\n", err)
		}
	}
	b.server.stop()
	return code
}

// serve handles commands and events until stdin is closed or the agent exits.
func (b *driver) serve(ctx context.Context, stdin io.Reader) int {
	commands := bridge.Commands(ctx.Done(), stdin, b.stderr)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case c, ok := <-commands:
			if !ok {
				return bridge.ExitDone
			}
			b.command(ctx, c)
		case data, ok := <-b.server.events:
			if !ok {
				b.server.stop() // unusable without its events
				return b.died()
			}
			if !b.hold(ctx, data) {
				b.out.Raw(data)
			}
			b.event(ctx, data)
		case <-b.server.child.Done():
			for data := range b.server.events { // its last events
				if !b.hold(ctx, data) {
					b.out.Raw(data)
				}
			}
			return b.died()
		case <-ticker.C:
			b.look(ctx)
		}
		if b.out.Err() != nil {
			return bridge.ExitFailed
		}
	}
}

// died reports that the agent has exited, and how.
func (b *driver) died() int {
	why := b.why
	if why == "" {
		why = b.server.child.Ended()
	}
	b.out.Note(stdio.Note{Type: stdio.NoteDied, Message: why})
	return bridge.ExitDied
}

// start starts the server and finds or creates the session.
func (b *driver) start(ctx context.Context) error {
	workspace, err := os.Getwd()
	if err == nil {
		err = withoutInstalls(os.Getenv("HOME"), workspace, os.Getenv("XDG_CONFIG_HOME"))
	}
	if err != nil {
		fmt.Fprintf(b.stderr, "opencode bridge: %v\n", err) // otherwise OpenCode installs its plugin library, which only takes longer
	}
	if shell, err := writeShell(filepath.Join(filepath.Dir(b.store.dir), ".shell")); err != nil {
		return err
	} else if err := os.Setenv("SHELL", shell); err != nil {
		return fmt.Errorf("choose the shell: %w", err)
	}
	have, found := b.store.main()
	fresh := found && !hasDatabase()
	if fresh {
		if err := importSession(ctx, b.program, have.file, b.config, b.stderr); err != nil {
			fmt.Fprintf(b.stderr, "opencode bridge: %v\n", err)
		}
	}
	if b.server, err = startServer(ctx, b.program, b.config, b.stderr); err != nil {
		return err
	}
	if found && b.resumes(ctx, have, fresh) {
		b.root, b.title = have.info.ID, have.info.Title
		return nil
	}
	if b.root, err = b.server.createSession(ctx); err == nil {
		b.store.touch(b.root)
		err = b.store.save(ctx, b.server) // so that it is found again in any case
	}
	if err != nil {
		b.server.stop()
	}
	return err
}

// resumes reports whether the server has the saved session with all of its messages. If not, it
// imports the session, because the database may be missing or older.
func (b *driver) resumes(ctx context.Context, have kept, imported bool) bool {
	has := func() bool {
		messages, err := b.server.messages(ctx, have.info.ID)
		return err == nil && len(messages) >= have.messages
	}
	if has() {
		return true
	}
	if imported {
		return false
	}
	if err := importSession(ctx, b.program, have.file, b.config, b.stderr); err != nil {
		fmt.Fprintf(b.stderr, "opencode bridge: %v\n", err)
		return false
	}
	return has()
}

// command handles a line of stdin.
func (b *driver) command(ctx context.Context, c stdio.Command) {
	switch c.Type {
	case stdio.Prompt:
		b.queue = append(b.queue, c)
		b.next(ctx)
	case stdio.Answer:
		b.answer(ctx, c)
	case stdio.Interrupt:
		b.interrupt(ctx, c.RunID)
	case stdio.Steer:
		b.steer(ctx, c)
	default:
		fmt.Fprintf(b.stderr, "opencode bridge: %q is not a command\n", c.Type)
	}
}

// answer sends the agent the answer to a question.
func (b *driver) answer(ctx context.Context, c stdio.Command) {
	var r opencodeformat.Reply
	if err := json.Unmarshal(c.Data, &r); err != nil {
		fmt.Fprintf(b.stderr, "opencode bridge: an answer cannot be read: %v\n", err)
		return
	}
	verb := "/reply"
	if r.Reject {
		verb = "/reject"
	}
	if err := b.server.reply(ctx, r.Kind, c.ID, verb, r.Body); err != nil {
		fmt.Fprintf(b.stderr, "opencode bridge: answer: %v\n", err) // the question no longer waits
	}
}

func hasDatabase() bool {
	_, err := os.Stat(databaseFile())
	return err == nil
}
