package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"unicode"

	"golang.org/x/sys/unix"
)

// keyboard reads lines from a terminal without echo, so that the screen can show them separately
// from streaming text. Interrupts remain signals.
type keyboard struct {
	file     *os.File
	settings func() error   // restores the settings of the terminal
	typing   chan string    // what has been typed of a line that is not complete
	lines    chan string    // complete lines; closed at the end of the input
	resized  chan os.Signal // the terminal has another size

	mu   sync.Mutex
	text []rune
}

// newKeyboard makes the terminal deliver each key and disables the echo.
func newKeyboard(file *os.File) (*keyboard, error) {
	restore, err := setTerminal(file, func(t *unix.Termios) {
		t.Lflag &^= unix.ICANON | unix.ECHO
		t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	})
	if err != nil {
		return nil, err
	}
	k := &keyboard{
		file: file, settings: restore,
		typing: make(chan string), lines: make(chan string),
		resized: make(chan os.Signal, 1), // the last of several counts
	}
	signal.Notify(k.resized, syscall.SIGWINCH)
	return k, nil
}

// HideInput disables the echo of a terminal until restore is called.
func HideInput(file *os.File) (restore func() error, err error) {
	return setTerminal(file, func(t *unix.Termios) { t.Lflag &^= unix.ECHO })
}

func setTerminal(file *os.File, change func(*unix.Termios)) (restore func() error, err error) {
	before, err := unix.IoctlGetTermios(int(file.Fd()), getTermios)
	if err != nil {
		return nil, fmt.Errorf("read settings of the terminal: %w", err)
	}
	now := *before
	change(&now)
	if err := unix.IoctlSetTermios(int(file.Fd()), setTermios, &now); err != nil {
		return nil, fmt.Errorf("change settings of the terminal: %w", err)
	}
	return func() error {
		if err := unix.IoctlSetTermios(int(file.Fd()), setTermios, before); err != nil {
			return fmt.Errorf("restore settings of the terminal: %w", err)
		}
		return nil
	}, nil
}

// restore restores the settings of the terminal.
func (k *keyboard) restore() error {
	signal.Stop(k.resized)
	return k.settings()
}

// clear drops what has been typed.
func (k *keyboard) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.text = nil
}

// Keys that edit the line.
const (
	keyEnd       = 0x04 // Ctrl-D
	keyBackspace = 0x08
	keyEraseLine = 0x15 // Ctrl-U
	keyEraseWord = 0x17 // Ctrl-W
	keyEscape    = 0x1b
	keyDelete    = 0x7f
)

// read reads keys until the input ends. It may outlive ctx until the next key.
func (k *keyboard) read(ctx context.Context) {
	defer close(k.lines)
	in := bufio.NewReader(k.file)
	for {
		key, _, err := in.ReadRune()
		if err != nil {
			return
		}
		if key == keyEscape {
			if skipSequence(in) != nil {
				return
			}
			continue
		}
		text, line, end := k.take(key)
		out := k.typing
		switch {
		case end:
			return
		case line:
			out = k.lines
		}
		select {
		case out <- text:
		case <-ctx.Done():
			return
		}
	}
}

// take edits the line. It returns the complete line, or the text typed so far.
func (k *keyboard) take(key rune) (text string, line, end bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch key {
	case '\r', '\n':
		text, k.text = string(k.text), nil
		return text, true, false
	case keyEnd:
		end = len(k.text) == 0
	case keyBackspace, keyDelete:
		k.text = k.text[:max(0, len(k.text)-1)]
	case keyEraseLine:
		k.text = nil
	case keyEraseWord:
		n := len(k.text)
		for n > 0 && unicode.IsSpace(k.text[n-1]) {
			n--
		}
		for n > 0 && !unicode.IsSpace(k.text[n-1]) {
			n--
		}
		k.text = k.text[:n]
	case '\t':
		k.text = append(k.text, ' ')
	default:
		if !unicode.IsControl(key) {
			k.text = append(k.text, key)
		}
	}
	return string(k.text), false, end
}

// skipSequence reads the rest of the escape sequence of a key such as an arrow.
func skipSequence(in *bufio.Reader) error {
	key, _, err := in.ReadRune()
	if err != nil || key != '[' && key != 'O' {
		return err
	}
	for {
		key, _, err = in.ReadRune()
		if err != nil || key >= 0x40 && key <= 0x7e {
			return err
		}
	}
}
