package box

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
)

// initLog forwards the stderr output of an init: an error message, or a panic.
type initLog struct {
	logger *slog.Logger
	box    string

	mu    sync.Mutex
	first string // first line, for the error of a box that did not start
}

func (l *initLog) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	l.logger.Warn("sandbox init complained", slog.String("sandbox_id", l.box), slog.String("output", text))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == "" {
		l.first = text
	}
	return len(p), nil
}

// err must be called after the process has been waited for.
func (l *initLog) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == "" {
		return nil
	}
	return errors.New(l.first)
}
