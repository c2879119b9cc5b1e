package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/overwinter-dev/overwinter/internal/agent"
	"github.com/overwinter-dev/overwinter/internal/agent/agenttest/modelserver"
	"github.com/overwinter-dev/overwinter/internal/agent/claude"
	"github.com/overwinter-dev/overwinter/internal/agent/npm"
	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// agentPrompt is a prompt that the model server answers at once with agentAnswer.
const agentPrompt = "{{hello}} there"

func newModels() *modelserver.Server {
	return modelserver.New(map[string][]modelserver.Step{"hello": {{Text: "Hello to you."}}})
}

// installed returns the directory of an agent's program in the user's cache, "" if it is not
// installed.
func installed(a interface{ Packages() []npm.Package }) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	dir := a.Packages()[0].Directory(filepath.Join(cache, "overwinter"))
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

const notInstalled = "the agent is not installed; run make agents"

// claudeSessions is the number of concurrent sessions and of bare processes.
const claudeSessions = 10

// measureClaude compares sessions of Claude Code with its bare process.
func measureClaude(ctx context.Context, b *bench, s *section) (err error) {
	firstDelta, rate, outside := within(1.6), reaches(0.7), within(0.5)
	dir := installed(claude.New())
	if dir == "" {
		s.skip("first delta of one session", notInstalled, firstDelta)
		s.skip("turns of ten sessions", notInstalled, rate)
		s.skip("CPU per turn outside the agent", notInstalled, outside)
		return nil
	}
	sys, err := b.system(ctx)
	if err != nil {
		return err
	}
	models := newModels()
	defer models.Close()
	s.note("Sessions of Claude Code %s and as many of its bare processes, with the same flags and environment, talk to the same model server, which "+
		"answers at once. One session and one process take turns for the first delta, which is from the POST, or the write to the process, until the first "+
		"word is with the reader, or on the process's output. Then ten sessions and ten processes take turns of %s, each with one prompt after the other. The "+
		"first such turn of both is not measured: the agents compile their code, and connections prepare their statements.", claude.Version, b.options.Window/2)
	secrets := map[string]string{claude.SecretKey: "sk-bench", claude.SecretBaseURL: models.URL()}
	if err := sys.client.secrets(ctx, secrets); err != nil {
		return err
	}

	var sessions []*probe
	var processes []*bareAgent
	defer func() {
		closeProbes(context.WithoutCancel(ctx), sys.client, sessions)
		for _, p := range processes {
			err = errors.Join(err, p.stop())
		}
	}()
	for range claudeSessions {
		p, err := newProbeOf(ctx, sys.client, claude.Name)
		if err != nil {
			return err
		}
		sessions = append(sessions, p)
		for range 2 { // the first one builds the image of the agent
			if err := p.send(ctx, agentPrompt, &prompts{}); err != nil {
				return fmt.Errorf("session: %w", err)
			}
		}
		process, err := startBareAgent(claude.New(), claude.Binary, filepath.Join(dir, "claude"), secrets)
		if err != nil {
			return fmt.Errorf("bare process: %w", err)
		}
		processes = append(processes, process)
		for range 2 {
			if _, err := process.turn(ctx, agentPrompt); err != nil {
				return fmt.Errorf("bare process: %w", err)
			}
		}
	}

	var ours prompts
	bare := &samples{}
	for began, i := time.Now(), 0; i < b.options.Rounds && time.Since(began) < b.options.Limit; i++ {
		took, err := processes[0].turn(ctx, agentPrompt)
		if err != nil {
			return fmt.Errorf("bare process: %w", err)
		}
		bare.add(took)
		if err := sessions[0].send(ctx, agentPrompt, &ours); err != nil {
			return fmt.Errorf("session: %w", err)
		}
	}
	s.compare("first delta of one session", distribution(&ours.first), "bare process", distribution(bare), firstDelta)
	return compareTen(ctx, b, sys, s, sessions, processes)
}

// compareTen alternates between all sessions working and all bare processes working. Both have
// worked together once before it measures.
func compareTen(ctx context.Context, b *bench, sys *system, s *section, sessions []*probe, processes []*bareAgent) error {
	var turns, bareTurns int
	var took, bareTook, bareCPU time.Duration
	used := cpuTime{}
	delta := &samples{}
	for round := range 4 {
		before := cpuOf(processes)
		n, lasted, err := inParallel(b.options.Window/2, len(processes), func(i int) error {
			_, err := processes[i].turn(ctx, agentPrompt)
			return err
		})
		if err != nil {
			return fmt.Errorf("bare processes: %w", err)
		}
		if round > 0 {
			bareTurns, bareTook, bareCPU = bareTurns+n, bareTook+lasted, bareCPU+cpuOf(processes)-before
		}

		cpuBefore := readCPU(sys.pid())
		n, lasted, err = inParallel(b.options.Window/2, len(sessions), func(i int) error {
			var p prompts
			if err := sessions[i].send(ctx, agentPrompt, &p); err != nil {
				return err
			}
			if round > 0 {
				delta.add(p.first.p50())
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("sessions: %w", err)
		}
		if round > 0 {
			turns, took, used = turns+n, took+lasted, used.plus(readCPU(sys.pid()).since(cpuBefore))
		}
	}
	s.compare("turns of ten sessions", number(float64(turns)/took.Seconds(), perSecond), "ten bare processes",
		number(float64(bareTurns)/bareTook.Seconds(), perSecond), reaches(0.7))
	each := func(d time.Duration, n int) value { return number(d.Seconds()/float64(max(1, n)), seconds) }
	// The goal is 35 ms if the agent takes 70 ms.
	s.compare("CPU per turn outside the agent", each(used.system(agentCPU), turns), "the agent in the same turns", used.perUnit(agentCPU, turns), within(0.5))
	s.compare("CPU per turn: agent", used.perUnit(agentCPU, turns), "bare process", each(bareCPU, bareTurns), noGoal)
	for _, k := range components[1:] {
		s.add("CPU per turn: "+string(k), used.perUnit(k, turns), noGoal)
	}
	s.add("first delta with ten sessions", distribution(delta), noGoal)
	return nil
}

// inParallel makes n workers repeat their turns until the time has passed, and returns how many turns
// they completed and how long that took, including the last ones.
func inParallel(during time.Duration, n int, turn func(i int) error) (turns int, took time.Duration, err error) {
	began := time.Now()
	counts := make([]int, n)
	var group errgroup.Group
	for i := range n {
		group.Go(func() error {
			for time.Since(began) < during {
				if err := turn(i); err != nil {
					return err
				}
				counts[i]++
			}
			return nil
		})
	}
	err = group.Wait()
	for _, c := range counts {
		turns += c
	}
	return turns, time.Since(began), err
}

// secrets stores the installation's secrets.
func (c *client) secrets(ctx context.Context, values map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, err := c.call(ctx, http.MethodPut, "/api/secrets/"+name, object{"value": values[name]}); err != nil {
			return err
		}
	}
	return nil
}

// bareAgent is an agent's process on this machine, without a sandbox, a journal or a store.
type bareAgent struct {
	adapter agent.Adapter
	command *exec.Cmd
	stdin   io.WriteCloser
	lines   chan arrivedLine // closed when the process has closed its output
	home    string
}

type arrivedLine struct {
	at   time.Time
	data []byte
}

// startBareAgent starts the program with the command line and environment of a session. placeholder
// is its path in sandboxes.
func startBareAgent(adapter agent.Adapter, placeholder, program string, secrets map[string]string) (_ *bareAgent, err error) {
	home, err := os.MkdirTemp("", "overwinter-bench-agent-*")
	if err != nil {
		return nil, err
	}
	a := &bareAgent{adapter: adapter, home: home, lines: make(chan arrivedLine, 256)} // more than one turn has
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(home))
		}
	}()
	workspace := filepath.Join(home, "workspace")
	if err := os.Mkdir(workspace, 0o700); err != nil {
		return nil, err
	}
	launch, err := adapter.Launch(agent.LaunchInput{SessionID: session.NewID(session.SessionPrefix), Home: home, Workspace: workspace})
	if err != nil {
		return nil, err
	}
	argv := slices.Clone(launch.Argv)
	at := slices.Index(argv, placeholder)
	if at < 0 {
		return nil, fmt.Errorf("%s is not in the command line of %s", placeholder, adapter.Name())
	}
	argv[at] = program
	a.command = exec.Command(argv[0], argv[1:]...) //nolint:noctx // a pinned agent; stop ends it
	a.command.Dir = launch.Dir
	a.command.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TMPDIR=" + home}
	for _, values := range []map[string]string{launch.Env, secrets} {
		for name, value := range values {
			a.command.Env = append(a.command.Env, name+"="+value)
		}
	}
	if a.stdin, err = a.command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := a.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(a.lines)
		for reader := bufio.NewReaderSize(stdout, 256<<10); ; {
			line, err := reader.ReadBytes('\n')
			if err != nil {
				return
			}
			a.lines <- arrivedLine{time.Now(), line[:len(line)-1]}
		}
	}()
	return a, nil
}

// turn runs a prompt to its end and returns the time to its first text.
func (a *bareAgent) turn(ctx context.Context, content string) (first time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitLimit, fmt.Errorf("the agent did not end its turn within %s", waitLimit))
	defer cancel()
	run := agent.RunContext{RunID: session.NewID(session.RunPrefix)}
	translator, err := a.adapter.NewTranslator(run, nil)
	if err != nil {
		return 0, err
	}
	prompt, err := a.adapter.Prompt(agent.PromptInput{RunID: run.RunID, Content: content, At: time.Now()})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := a.stdin.Write(prompt); err != nil {
		return 0, err
	}
	for no := int64(0); ; no++ {
		var line arrivedLine
		var ok bool
		select {
		case line, ok = <-a.lines:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		if !ok {
			return 0, errors.New("the agent ended")
		}
		got, err := translator.Translate(agent.Frame{No: no, Stream: agent.Stdout, At: line.at, Data: line.data})
		if err != nil {
			return 0, err
		}
		for _, e := range got.Events {
			if e.Type == conversation.EventTextDelta && first == 0 {
				first = line.at.Sub(began)
			}
		}
		if len(got.Input) > 0 {
			if _, err := a.stdin.Write(got.Input); err != nil {
				return 0, err
			}
		}
		if got.End == nil {
			continue
		}
		if got.End.Outcome != session.OutcomeCompleted || first == 0 {
			return 0, fmt.Errorf("the turn ended %s without text: %s", got.End.Outcome, got.End.Reason)
		}
		return first, nil
	}
}

// stop ends the process and removes its files.
func (a *bareAgent) stop() error {
	a.stdin.Close()
	a.command.Process.Kill() //nolint:errcheck // likewise
	for range a.lines {      // until it has closed its output
	}
	a.command.Wait() //nolint:errcheck // killed
	return os.RemoveAll(a.home)
}

// cpuOf returns the CPU time of the processes and all their descendants.
func cpuOf(agents []*bareAgent) time.Duration {
	table := readProcesses()
	var sum time.Duration
	for pid, p := range table {
		for _, a := range agents {
			if table.descends(pid, a.command.Process.Pid) {
				sum += p.used
			}
		}
	}
	return sum
}

// descends reports whether a process is another one or its descendant.
func (t processes) descends(pid, ancestor int) bool {
	for ; pid > 1; pid = t[pid].parent {
		if pid == ancestor {
			return true
		}
	}
	return false
}

// firstText starts a program and returns the time until its output has a line that match accepts.
func firstText(ctx context.Context, command *exec.Cmd, match string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	stdout, err := command.StdoutPipe()
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, func() { command.Process.Kill() })() //nolint:errcheck // it may have ended
	began := time.Now()
	if err := command.Start(); err != nil {
		return 0, err
	}
	var took time.Duration
	var last string
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		last = lines.Text()
		if strings.Contains(last, match) {
			took = time.Since(began)
			break
		}
	}
	command.Process.Kill() //nolint:errcheck // it may have ended
	command.Wait()         //nolint:errcheck // killed
	if took == 0 {
		return 0, fmt.Errorf("%s said no text; its last line: %.200s", filepath.Base(command.Path), last)
	}
	return took, nil
}
