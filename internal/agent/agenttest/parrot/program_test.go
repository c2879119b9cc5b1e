package parrot

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// program is the agent. Real agents are separate programs; this one is part of the test binary.
type program struct {
	out        io.Writer
	transcript *os.File
	first      string          // prompt of the session
	known      map[string]bool // runs
	interrupts chan os.Signal
}

// runProgram is the main function of the agent. It returns when stdin is closed.
func runProgram(transcript string, stdin io.Reader, stdout io.Writer) error {
	if err := os.MkdirAll(filepath.Dir(transcript), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(transcript, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	p := &program{out: stdout, transcript: file, known: map[string]bool{}, interrupts: make(chan os.Signal, 1)} // the newest
	signal.Notify(p.interrupts, syscall.SIGINT)
	defer signal.Stop(p.interrupts)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var r record
		if json.Unmarshal(lines.Bytes(), &r) == nil {
			p.remember(r)
		}
	}
	for lines := bufio.NewScanner(stdin); lines.Scan(); {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		if err := p.turn(r); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) remember(r record) {
	if r.Prompt != nil {
		p.known[r.Run] = true
		if p.first == "" {
			p.first = r.Prompt.Content
		}
	}
}

// turn repeats a prompt. It ignores a run that it already knows.
func (p *program) turn(r record) error {
	if p.known[r.Run] {
		return p.print(record{Run: r.Run, At: r.At, Done: true}, p.out)
	}
	p.remember(r)
	if err := p.print(r, p.out, p.transcript); err != nil {
		return err
	}
	words := strings.SplitAfter(r.Prompt.Content, " ")
	switch r.Prompt.Content {
	case "first?":
		words = []string{p.first}
	case "forever":
		words = strings.SplitAfter(strings.Repeat("word ", 10000), " ")
	}
	end := record{Run: r.Run, At: r.At, Done: true}
	for ; len(words) > 0 && !end.Aborted; words = words[1:] {
		end.Answer += words[0]
		end.Words++
		if err := p.print(record{Run: r.Run, At: r.At, Piece: words[0]}, p.out); err != nil {
			return err
		}
		end.Aborted = p.interrupted(len(words) > 1)
	}
	return p.print(end, p.transcript, p.out)
}

// pause is the time between two words of a long answer.
const pause = 10 * time.Millisecond

// interrupted reports whether a signal arrived. If more words follow, it waits for one until the
// next word is due.
func (p *program) interrupted(more bool) bool {
	if !more {
		return false
	}
	select {
	case <-p.interrupts:
		return true
	case <-time.After(pause):
		return false
	}
}

func (p *program) print(r record, to ...io.Writer) error {
	line, err := json.Marshal(r)
	for _, w := range to {
		if err == nil {
			_, err = w.Write(append(line, '\n'))
		}
	}
	return err
}
