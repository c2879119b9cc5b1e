package secret

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
)

// LogMask masks secrets in log messages. The zero value masks nothing until Set.
type LogMask struct{ masker atomic.Pointer[Masker] }

// Set replaces the masker.
func (l *LogMask) Set(m *Masker) { l.masker.Store(m) }

// Handler returns a handler that masks messages and attributes before it passes them to next.
func (l *LogMask) Handler(next slog.Handler) slog.Handler { return logHandler{next, l} }

type logHandler struct {
	next slog.Handler
	mask *LogMask
}

func (h logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	m := h.mask.masker.Load()
	if m == nil {
		return h.next.Handle(ctx, r)
	}
	masked := slog.NewRecord(r.Time, r.Level, m.Text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		masked.AddAttrs(m.attr(a))
		return true
	})
	return h.next.Handle(ctx, masked)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if m := h.mask.masker.Load(); m != nil {
		masked := make([]slog.Attr, len(attrs))
		for i, a := range attrs {
			masked[i] = m.attr(a)
		}
		attrs = masked
	}
	return logHandler{h.next.WithAttrs(attrs), h.mask}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.next.WithGroup(name), h.mask}
}

// attr masks an attribute. A value that is not text is replaced by its text only if that contains a
// secret.
func (m *Masker) attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.String(a.Key, m.Text(v.String()))
	case slog.KindGroup:
		members := v.Group()
		masked := make([]any, len(members))
		for i, member := range members {
			masked[i] = m.attr(member)
		}
		return slog.Group(a.Key, masked...)
	case slog.KindAny:
		text := fmt.Sprint(v.Any())
		if masked := m.Text(text); masked != text {
			return slog.String(a.Key, masked)
		}
	default: // numbers and times
	}
	return slog.Attr{Key: a.Key, Value: v}
}
