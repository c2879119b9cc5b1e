// Command picture records a session that sleeps and wakes, and draws the terminal as an SVG. It
// starts `overwinter dev` in a temporary directory, runs the commands of the picture with a shell,
// and draws their output. The output is real, and nothing is sent to other machines:
//
//	make picture    writes docs/session.svg
package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// step is one command of the shell with its output.
type step struct {
	comment string
	command string
	// until is a line that `session show` prints before the next step, after this one.
	until string
}

// steps run in the order of the picture; $ID is the session.
var steps = []step{
	{
		comment: "A prompt, from a machine with nothing but `overwinter dev`:",
		command: "overwinter session prompt $ID 'write hello.txt: made before the sleep'",
		until:   "hibernated",
	},
	{
		comment: "Five idle seconds later the sandbox is a snapshot. No process of it is left.",
		command: "overwinter session show $ID | grep -E 'status|generation|active'",
	},
	{
		comment: "The next prompt wakes the session, with the agent's memory and its files:",
		command: "overwinter session prompt $ID recall --wait",
	},
	{
		command: "overwinter session files $ID hello.txt; echo",
		until:   "hibernated",
	},
	{
		comment: "The stream has all of it, each event once. Any client can read it again:",
		command: "overwinter session follow $ID --until idle",
	},
}

// create creates the session; it needs jq.
const create = "ID=$(overwinter session create --agent demo --idle-timeout 5s -o json | jq -r .id)"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: picture DIRECTORY-OF-PROGRAMS FILE.svg")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, programs, file string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	programs, err = filepath.Abs(programs)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "overwinter-picture-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // Postgres runs as another user below it
		return err
	}
	api, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	var log bytes.Buffer
	dev := exec.CommandContext(ctx, filepath.Join(programs, "overwinter"), "dev", "--data-dir", filepath.Join(dir, "data"),
		"--api-address", api, "--temporal-port", "0", "--temporal-ui-port", "0")
	dev.Stdout, dev.Stderr = &log, &log
	dev.Cancel = func() error { return dev.Process.Signal(os.Interrupt) }
	dev.WaitDelay = time.Minute
	if err := dev.Start(); err != nil {
		return err
	}
	defer func() {
		cancel()
		if ended := dev.Wait(); err != nil {
			err = fmt.Errorf("%w\noverwinter dev: %w\n%s", err, ended, log.String())
		}
	}()
	if err := ready(ctx, api); err != nil {
		return err
	}

	sh := shell{env: append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "OVERWINTER_API_URL=http://"+api)}
	id, err := sh.run(ctx, create+"; echo $ID")
	if err != nil {
		return err
	}
	sh.env = append(sh.env, "ID="+strings.TrimSpace(id))
	lines := []line{{command: create}}
	for _, s := range steps {
		lines = append(lines, line{})
		if s.comment != "" {
			lines = append(lines, line{comment: s.comment})
		}
		lines = append(lines, line{command: s.command})
		out, err := sh.run(ctx, s.command)
		if err != nil {
			return err
		}
		for text := range strings.Lines(strings.TrimRight(out, "\n")) {
			lines = append(lines, line{output: strings.TrimRight(text, "\n")})
		}
		if err := sh.await(ctx, s.until); err != nil {
			return err
		}
	}
	return os.WriteFile(file, draw(lines), 0o644)
}

type shell struct{ env []string }

func (s shell) run(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", command, err, out)
	}
	return string(out), nil
}

// await waits until the session has the given status. It returns at once if s is empty.
func (s shell) await(ctx context.Context, status string) error {
	for status != "" {
		out, err := s.run(ctx, "overwinter session show $ID")
		if err != nil {
			return err
		}
		if strings.Contains(out, status) {
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

func ready(ctx context.Context, api string) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+api+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(200 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("the system did not get there in time"), ctx.Err())
	}
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// line is one line of the terminal, of one of three kinds.
type line struct{ comment, command, output string }

const (
	columns    = 96
	width      = 2*margin + columns*39/5 // 13 pixels high, 7.8 wide
	lineHeight = 19
	margin     = 20
)

// draw returns an SVG with its own background, so that it is readable on light and on dark pages.
func draw(lines []line) []byte {
	var b, body bytes.Buffer
	y := margin + lineHeight
	row := func(class, text string) {
		if text != "" {
			fmt.Fprintf(&body, "<text x=\"%d\" y=\"%d\" class=\"%s\" xml:space=\"preserve\">%s</text>\n", margin, y, class, escape(text))
		}
		y += lineHeight
	}
	for _, l := range lines {
		class, text := classOf(l)
		for _, piece := range wrap(text) {
			row(class, piece)
		}
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img">
<title>A session that sleeps and wakes, in a terminal</title>
<style>
rect { fill: #161b22; stroke: #6e7681 }
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #c9d1d9 }
.command { fill: #ffffff; font-weight: bold }
.comment { fill: #8b949e }
.sleep { fill: #79c0ff }
.wake { fill: #7ee787 }
</style>
<rect x="0.5" y="0.5" width="%d" height="%d" rx="8"/>
%s</svg>
`, width, y+margin-lineHeight, width-1, y+margin-lineHeight-1, body.String())
	return b.Bytes()
}

func classOf(l line) (class, text string) {
	switch {
	case l.comment != "":
		return "comment", "# " + l.comment
	case l.command != "":
		return "command", "$ " + l.command
	case strings.Contains(l.output, "hibernat"):
		return "sleep", l.output
	case strings.Contains(l.output, "restor"), strings.HasPrefix(l.output, "I have had"), strings.HasPrefix(l.output, "made before"):
		return "wake", l.output
	}
	return "output", l.output
}

// wrap breaks a line at the terminal's width.
func wrap(text string) []string {
	var out []string
	rest := []rune(text)
	for len(rest) > columns {
		out, rest = append(out, string(rest[:columns])), rest[columns:]
	}
	return append(out, string(rest))
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text))
	return b.String()
}
