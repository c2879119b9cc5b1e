package secret

import "context"

type markKey struct{}

// WithMark returns a context for reading the stored secrets and what masks them. The mark changes whenever a
// secret is stored, deleted or encrypted with another key, and the caller has just read it: a reader that
// knows the secrets with this mark need not read anything.
func WithMark(ctx context.Context, mark string) context.Context {
	return context.WithValue(ctx, markKey{}, mark)
}

// MarkOf returns the mark of a context, and whether it has one.
func MarkOf(ctx context.Context) (mark string, ok bool) {
	mark, ok = ctx.Value(markKey{}).(string)
	return mark, ok
}
