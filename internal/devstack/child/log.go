package child

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	// maxLine bounds a line of output; a longer line is split.
	maxLine = 64 << 10
	// keptLogs is the number of earlier logs that are kept, of this run and of previous ones.
	keptLogs = 3
	// maxLogBytes is the size at which a new log is started, because every request of a client adds
	// a line.
	maxLogBytes = 64 << 20
)

// logFile receives a child's output across restarts.
type logFile struct {
	path     string
	severity func(line []byte) slog.Level
	echo     func(level slog.Level, line []byte)

	mu            sync.Mutex
	file          *os.File
	size          int64  // bytes written to file
	limit         int64  // maxLogBytes
	last          string // last line since the last reset, if not empty
	lastErrorLine string // last line that was an error
}

// openLog starts a new log and renames those of earlier runs.
func openLog(dir, name string, severity func([]byte) slog.Level, echo func(slog.Level, []byte)) (*logFile, error) {
	l := &logFile{path: filepath.Join(dir, name+".log"), severity: severity, echo: echo, limit: maxLogBytes}
	if err := l.begin(); err != nil {
		return nil, err
	}
	return l, nil
}

// begin renames earlier logs, deletes the oldest, and starts a new one. After an error the current
// log is unchanged.
func (l *logFile) begin() error {
	for i := keptLogs; i > 0; i-- {
		older, newer := fmt.Sprintf("%s.%d", l.path, i), fmt.Sprintf("%s.%d", l.path, i-1)
		if i == 1 {
			newer = l.path
		}
		if err := os.Rename(newer, older); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rotate log: %w", err)
		}
	}
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	if l.file != nil {
		_ = l.file.Close() // nothing of it is buffered
	}
	l.file, l.size = file, 0
	return nil
}

// copyFrom logs all lines of output until it ends or fails.
func (l *logFile) copyFrom(output io.Reader) {
	lines := bufio.NewReaderSize(output, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			l.add(bytes.TrimRight(line, "\r\n"))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (l *logFile) add(line []byte) {
	level := l.severity(line)
	l.mu.Lock()
	l.write(append(bytes.Clone(line), '\n'))
	if len(bytes.TrimSpace(line)) > 0 {
		l.last = string(line)
		if level >= slog.LevelError {
			l.lastErrorLine = l.last
		}
	}
	l.mu.Unlock()
	l.echo(level, line)
}

// write appends to the log, or to a new one if the line does not fit. A log that cannot be written
// (the disk is full) must not stop the child. The caller holds l.mu.
func (l *logFile) write(line []byte) {
	if l.size > 0 && l.size+int64(len(line)) > l.limit && l.begin() != nil && l.file.Truncate(0) == nil {
		l.size = 0 // it cannot be stored
	}
	n, _ := l.file.Write(line)
	l.size += int64(n)
}

// reset forgets the final output, for the next run of the child.
func (l *logFile) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.lastErrorLine = "", ""
}

// lastWords returns the line that most likely explains why the child ended, "" without output.
func (l *logFile) lastWords() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastErrorLine != "" {
		return plain([]byte(l.lastErrorLine))
	}
	return plain([]byte(l.last))
}

func (l *logFile) close() error { return l.file.Close() }

// jsonSeverity reads the level of a JSON log line, of slog or zap. Anything else is info.
func jsonSeverity(line []byte) slog.Level {
	if len(line) == 0 || line[0] != '{' {
		return slog.LevelInfo
	}
	var parsed struct {
		Level string `json:"level"`
	}
	if json.Unmarshal(line, &parsed) != nil {
		return slog.LevelInfo
	}
	switch strings.ToLower(parsed.Level) {
	case "debug":
		return slog.LevelDebug
	case "warn", "warning":
		return slog.LevelWarn
	case "error", "dpanic", "panic", "fatal":
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}

// plain formats a JSON log line for people: the message, then name=value. Other lines are
// unchanged.
func plain(line []byte) string {
	var attributes map[string]any
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &attributes) != nil {
		return string(line)
	}
	var text strings.Builder
	fmt.Fprint(&text, attributes["msg"])
	for _, name := range []string{"msg", "level", "time", "ts", "logging-call-at"} {
		delete(attributes, name)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		fmt.Fprintf(&text, " %s=%v", name, attributes[name])
	}
	return strings.Join(strings.Fields(text.String()), " ") // on one line
}
