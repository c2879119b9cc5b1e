package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/overwinter-dev/overwinter/internal/failure"
	"github.com/overwinter-dev/overwinter/internal/listing"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// Bounds on the work for one page. They limit each step, regardless of the number of sessions.
const (
	// shortWalk bounds the sessions that are read in the order of the list before an index on the
	// filters is used; shortSearch is the bound if they are read from a single table.
	shortWalk   = 2000
	shortSearch = 4000
	// maxFound bounds the sessions that such an index may find.
	maxFound = 5000
	// maxTrigrams bounds the trigrams that are looked up in the index of titles: for each, the
	// index stores a list of all titles that contain it. For words with more trigrams, the index
	// finds candidates by parts of the words, which are then compared with the whole.
	maxTrigrams = 12
	// longWalk bounds the sessions that are read in order after that index finds too many, or if it
	// cannot be used.
	longWalk = 6000
)

// SessionList returns a page of sessions and the cursor of the next page, which is empty for the
// last page. The work for a page is bounded: a page may be short, or even empty, although more
// follow, if the filters match very few of very many sessions and no index finds them. A cursor of
// a list in another order is invalid_request.
func (db *DB) SessionList(ctx context.Context, f listing.Filter) (items []session.Session, nextCursor string, err error) {
	l, err := newListing(f)
	if err != nil {
		return nil, "", err
	}
	if l.search, err = db.searchIndex(ctx); err != nil {
		return nil, "", err
	}
	err = db.inTx(ctx, "list sessions", pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		keys, next, err := l.page(ctx, tx)
		if err != nil {
			return err
		}
		if next != nil {
			nextCursor = l.cursor(*next)
		}
		if items, err = db.sessionsOf(ctx, tx, keys); err != nil {
			return err
		}
		return db.startWaits(ctx, tx, starting(items))
	})
	return items, nextCursor, err
}

// sessionsOf reads sessions in the order of the given keys, with their pending commands and heads.
func (db *DB) sessionsOf(ctx context.Context, tx pgx.Tx, keys []listKey) ([]session.Session, error) {
	items := make([]session.Session, len(keys))
	if len(keys) == 0 {
		return items, nil
	}
	at := make(map[string]int, len(keys))
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i], at[key.ID], items[i].ID = key.ID, i, key.ID
	}
	var in lookups
	err := in.send(ctx, tx.Conn(), []string{genericPlans}, func(in *lookups) error {
		rows, viewsErr := db.q.SessionViews(ctx, in, ids)
		for _, row := range rows {
			s, err := sessionOf(row)
			if err != nil {
				return err
			}
			items[at[row.ID]] = s
		}
		return cmp.Or(viewsErr, db.commandsInto(ctx, in, items), db.headsInto(ctx, in, items))
	})
	return items, err
}

// listKey is the position of a session in a list.
type listKey struct {
	ID string
	At time.Time
}

// listQuery builds the statements of a list. It is the only code whose SQL depends on a client's
// request; values are always parameters.
//
// A page is read in steps, until one of them determines the whole page:
//
//  1. The first shortWalk or shortSearch sessions in the order of the list, from an index that has
//     this order and, if possible, one of the filters. This suffices for filters that many sessions
//     match.
//  2. All sessions that the indexes on the filters find, if there are at most maxFound. This
//     suffices for filters that few sessions match.
//  3. The next longWalk sessions in the order of the list. If the page is still not full, it ends
//     where the walk ended.
type listQuery struct {
	filter     listing.Filter
	limit      int
	after      *listKey // where the page begins
	byActivity bool
	descending bool
	labels     []uuid.UUID
	words      []string
	idPrefix   string // the query as a prefix of IDs; "" if it cannot be one
	idOnly     bool   // the query is a prefix of an ID and not part of a title
	search     searchIndex
}

func newListing(f listing.Filter) (*listQuery, error) {
	l := &listQuery{filter: f, limit: pageLimit(f.Limit)}
	l.filter.Sort = cmp.Or(f.Sort, listing.Newest)
	l.byActivity = l.filter.Sort == listing.Active || l.filter.Sort == listing.LeastActive
	l.descending = l.filter.Sort == listing.Newest || l.filter.Sort == listing.Active
	for _, m := range f.Metadata {
		l.labels = append(l.labels, metadataFacet(text(m.Key), text(m.Value)))
	}
	l.words = strings.Fields(text(f.Query))
	if len(l.words) > listing.MaxWords || len(l.labels) > listing.MaxMetadata {
		return nil, failure.Errorf(failure.Invalid, "a list has too many filters")
	}
	if len(l.words) == 1 {
		l.idPrefix, l.idOnly = idPrefix(l.words[0])
	}
	if f.Cursor == "" {
		return l, nil
	}
	var c sessionCursor
	err := cursorDecode(f.Cursor, &c)
	if err == nil && cmp.Or(c.Sort, listing.Newest) != l.filter.Sort {
		err = failure.Errorf(failure.Invalid, "the cursor belongs to a list in another order")
	}
	l.after = &listKey{ID: c.ID, At: c.At}
	return l, err
}

func (l *listQuery) cursor(next listKey) string {
	c := sessionCursor{At: next.At.UTC(), ID: next.ID, Sort: l.filter.Sort}
	if c.Sort == listing.Newest {
		c.Sort = ""
	}
	return cursorEncode(c)
}

// page returns the sessions of the page, and where the next one begins; nil if there is none.
func (l *listQuery) page(ctx context.Context, tx pgx.Tx) (keys []listKey, next *listKey, err error) {
	bound := shortWalk
	switch {
	case !l.filtered():
		bound = l.limit + 1
	case l.source().table == sessionsSource:
		bound = shortSearch
	}
	keys, err = l.keys(ctx, tx, l.walk(l.after, bound))
	if err != nil || len(keys) > l.limit || !l.filtered() {
		return l.cut(keys, nil, err)
	}
	end, err := l.keys(ctx, tx, l.walkEnd(l.after, bound))
	if err != nil || len(end) == 0 {
		return l.cut(keys, nil, err)
	}
	if lookup, ok := l.lookup(); ok {
		found, complete, err := l.found(ctx, tx, lookup)
		if err != nil || complete {
			return l.cut(found, nil, err)
		}
	}
	more, err := l.keys(ctx, tx, l.walk(&end[0], longWalk))
	if keys = append(keys, more...); err != nil || len(keys) > l.limit {
		return l.cut(keys, nil, err)
	}
	end, err = l.keys(ctx, tx, l.walkEnd(&end[0], longWalk))
	if err != nil || len(end) == 0 {
		return l.cut(keys, nil, err)
	}
	return l.cut(keys, &end[0], nil)
}

// cut truncates a page to its limit; next is where the following page begins if this one is short.
func (l *listQuery) cut(keys []listKey, next *listKey, err error) ([]listKey, *listKey, error) {
	if err != nil {
		return nil, nil, err
	}
	if len(keys) > l.limit {
		keys = keys[:l.limit]
		next = &keys[l.limit-1]
	}
	return keys, next, nil
}

// keys runs a statement that returns keys.
func (l *listQuery) keys(ctx context.Context, tx pgx.Tx, s statement) ([]listKey, error) {
	rows, err := tx.Query(ctx, s.sql, s.args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[listKey])
}

// found runs a lookup. The result is complete if the index found at most maxFound sessions.
func (l *listQuery) found(ctx context.Context, tx pgx.Tx, s statement) (keys []listKey, complete bool, err error) {
	// The planner underestimates the cost of an ordered or sequential scan, because it assumes that
	// filters are independent.
	if _, err := tx.Exec(ctx, "SET LOCAL enable_seqscan = off; SET LOCAL enable_indexscan = off"); err != nil {
		return nil, false, err
	}
	rows, err := tx.Query(ctx, s.sql, s.args...)
	if err != nil {
		return nil, false, err
	}
	var total int64
	var id *string
	var at *time.Time
	_, err = pgx.ForEachRow(rows, []any{&total, &id, &at}, func() error {
		if id != nil {
			keys = append(keys, listKey{ID: *id, At: *at})
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	_, err = tx.Exec(ctx, "SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = on")
	return keys, total <= maxFound, err
}

// statement is SQL with its parameters.
type statement struct {
	sql  string
	args []any
}

// arg adds a parameter and returns its name.
func (s *statement) arg(value any) string {
	s.args = append(s.args, value)
	return "$" + strconv.Itoa(len(s.args))
}

const sessionsSource = "sessions c"

// source is the table, with alias c, that a walk reads in the order of the list.
type source struct{ table, id, at string }

func (l *listQuery) source() source {
	switch {
	case l.byActivity:
		return source{"session_activity c", "c.session_id", "c.at"}
	case len(l.labels) > 0:
		return source{"session_labels c", "c.session_id", "c.created_at"}
	}
	return source{sessionsSource, "c.id", "c.created_at"}
}

// filtered reports whether a walk reads sessions that do not belong to the list.
func (l *listQuery) filtered() bool {
	if len(l.words) > 0 {
		return true
	}
	rest := len(l.labels) > 1 || l.filter.Status != "" || l.filter.Agent != ""
	switch {
	case l.byActivity:
		return rest || len(l.labels) > 0 || !l.filter.CreatedSince.IsZero() || !l.filter.CreatedBefore.IsZero()
	case len(l.labels) > 0:
		return rest
	}
	return false
}

// walk returns the statement for the sessions of the list among the first bound rows of its source.
func (l *listQuery) walk(after *listKey, bound int) statement {
	var s statement
	from := l.source()
	title := ""
	if from.table == sessionsSource {
		title = ", c.title"
	}
	inner := fmt.Sprintf("SELECT %s AS id, %s AS at%s FROM %s%s %s LIMIT %d",
		from.id, from.at, title, from.table, where(l.inSource(&s, after)), l.order(from.at, from.id), bound)
	rest := ""
	switch {
	case title != "":
		rest = where(l.matches(&s, "w"))
	case l.filtered():
		// OFFSET prevents the planner from flattening this into a join: each session is looked up
		// by its ID, until the page is full.
		rest = " CROSS JOIN LATERAL (SELECT FROM sessions s" + where(append([]string{"s.id = w.id"}, l.inSession(&s)...)) + " OFFSET 0) r"
	}
	s.sql = fmt.Sprintf("SELECT w.id, w.at FROM (%s) w%s %s LIMIT %d", inner, rest, l.order("w.at", "w.id"), l.limit+1)
	return s
}

// walkEnd returns the statement for the last session that a walk reads; no row if there are fewer.
func (l *listQuery) walkEnd(after *listKey, bound int) statement {
	var s statement
	from := l.source()
	s.sql = fmt.Sprintf("SELECT %s AS id, %s AS at FROM %s%s %s OFFSET %d LIMIT 1",
		from.id, from.at, from.table, where(l.inSource(&s, after)), l.order(from.at, from.id), bound-1)
	return s
}

// inSource returns the conditions that an index on the source satisfies.
func (l *listQuery) inSource(s *statement, after *listKey) (conds []string) {
	from := l.source()
	switch from.table {
	case "session_labels c":
		conds = append(conds, "c.label = "+s.arg(l.labels[0]))
	case sessionsSource:
		if l.filter.Status != "" {
			conds = append(conds, "c.status = "+s.arg(string(l.filter.Status)))
		}
		if l.filter.Agent != "" {
			conds = append(conds, "c.agent = "+s.arg(text(l.filter.Agent)))
		}
	}
	if !l.byActivity {
		conds = append(conds, l.created(s, from.at)...)
	}
	return append(conds, l.keyset(s, after, from.at, from.id)...)
}

// inSession returns the conditions that are checked for each session that a walk of another table
// reads.
func (l *listQuery) inSession(s *statement) (conds []string) {
	if l.filter.Status != "" {
		conds = append(conds, "s.status = "+s.arg(string(l.filter.Status)))
	}
	if l.filter.Agent != "" {
		conds = append(conds, "s.agent = "+s.arg(text(l.filter.Agent)))
	}
	labels := l.labels
	if l.byActivity {
		conds = append(conds, l.created(s, "s.created_at")...)
	} else if len(labels) > 0 {
		labels = labels[1:] // the source satisfies the first
	}
	for _, label := range labels {
		// Here, too, OFFSET prevents a join: a join may look up the session without its time, among
		// all sessions with the label.
		conds = append(conds, "EXISTS (SELECT FROM session_labels l WHERE l.label = "+s.arg(label)+
			" AND l.created_at = s.created_at AND l.session_id = s.id OFFSET 0)")
	}
	return append(conds, l.matches(s, "s")...)
}

func (l *listQuery) created(s *statement, at string) (conds []string) {
	if !l.filter.CreatedSince.IsZero() {
		conds = append(conds, at+" >= "+s.arg(l.filter.CreatedSince.UTC()))
	}
	if !l.filter.CreatedBefore.IsZero() {
		conds = append(conds, at+" < "+s.arg(l.filter.CreatedBefore.UTC()))
	}
	return conds
}

func (l *listQuery) keyset(s *statement, after *listKey, at, id string) []string {
	if after == nil {
		return nil
	}
	than := ">"
	if l.descending {
		than = "<"
	}
	return []string{fmt.Sprintf("(%s, %s) %s (%s::timestamptz, %s::text)", at, id, than, s.arg(after.At.UTC()), s.arg(after.ID))}
}

// matches returns the conditions of the search, for a table with an ID and a title.
func (l *listQuery) matches(s *statement, alias string) []string {
	if len(l.words) == 0 {
		return nil
	}
	id := ""
	if l.idPrefix != "" {
		id = alias + ".id LIKE " + s.arg(likeLiteral(l.idPrefix)+"%")
	}
	if l.idOnly {
		return []string{id}
	}
	words := make([]string, len(l.words))
	for i, word := range l.words {
		words[i] = alias + ".title ILIKE " + s.arg(contains(word))
	}
	match := strings.Join(words, " AND ")
	if id != "" {
		match += " OR " + id
	}
	return []string{"(" + match + ")"}
}

// lookup returns the statement for all sessions that the indexes on the filters find, at most
// maxFound and one: their number, and the first ones of the page. ok is false if no index can find
// them.
func (l *listQuery) lookup() (s statement, ok bool) {
	var facets []uuid.UUID
	if l.filter.Status != "" {
		facets = append(facets, facet("status:"+string(l.filter.Status)))
	}
	if l.filter.Agent != "" {
		facets = append(facets, facet("agent:"+text(l.filter.Agent)))
	}
	facets = append(facets, l.labels...)
	var indexed []string
	if len(facets) > 0 {
		indexed = append(indexed, "session_facets(s.status, s.agent, s.metadata) @> "+s.arg(facets)+"::uuid[]")
	}
	var from []string
	found := func(conds ...string) {
		from = append(from, fmt.Sprintf("(SELECT s.id, s.created_at, s.last_activity_at, s.title FROM sessions s%s LIMIT %d)",
			where(append(slices.Clone(indexed), conds...)), maxFound+1))
	}
	runs := l.search.runs(l.words)
	if l.idPrefix != "" && (l.idOnly || len(runs) > 0) {
		// The digits sort before g in every collation.
		found("s.id >= "+s.arg(l.idPrefix), "s.id <= "+s.arg(l.idPrefix+"g"))
	}
	if !l.idOnly && len(indexed)+len(runs) > 0 {
		var conds []string
		for _, run := range runs {
			conds = append(conds, "s.title ILIKE "+s.arg(contains(run)))
		}
		found(conds...)
	}
	if len(from) == 0 {
		return s, false
	}
	at := "f.created_at"
	if l.byActivity {
		at = "f.last_activity_at"
	}
	rest := append(l.keyset(&s, l.after, at, "f.id"), l.created(&s, "f.created_at")...)
	rest = append(rest, l.matches(&s, "f")...)
	s.sql = fmt.Sprintf("WITH found AS MATERIALIZED (%s) SELECT t.total, k.id, k.at FROM (SELECT count(*) AS total FROM found) t"+
		" LEFT JOIN LATERAL (SELECT f.id, %s AS at FROM found f%s %s LIMIT %d) k ON true", strings.Join(from, " UNION "), at, where(rest), l.order(at, "f.id"), l.limit+1)
	return s, true
}

func (l *listQuery) order(at, id string) string {
	direction := ""
	if l.descending {
		direction = " DESC"
	}
	return "ORDER BY " + at + direction + ", " + id + direction
}

func where(conds []string) string {
	if len(conds) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(conds, " AND ")
}

// facet returns the digest of a filter value that session_facets stores.
func facet(of string) uuid.UUID {
	sum := sha256.Sum256([]byte(of))
	return uuid.UUID(sum[:16])
}

func metadataFacet(key, value string) uuid.UUID {
	return facet("metadata:" + strconv.Itoa(utf8.RuneCountInString(key)) + ":" + key + ":" + value)
}

// minIDDigits is the number of digits of an ID prefix from which on it matches few sessions.
const minIDDigits = 4

// idPrefix returns word as a prefix of session IDs, "" if it cannot be one. only is false if word
// lacks the common prefix of IDs, and thus may be part of a title as well.
func idPrefix(word string) (prefix string, only bool) {
	digits, only := strings.CutPrefix(strings.ToLower(word), session.SessionPrefix)
	if len(digits) < minIDDigits || strings.Trim(digits, "0123456789abcdef") != "" {
		return "", false
	}
	return session.SessionPrefix + digits, only
}

var likeEscaper = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// likeLiteral returns words as a LIKE pattern that matches them literally.
func likeLiteral(words string) string { return likeEscaper.Replace(words) }

func contains(word string) string { return "%" + likeLiteral(word) + "%" }

// searchIndex describes which terms the index of titles can find.
type searchIndex struct {
	usable bool
	// letters reports whether the index contains letters other than a to z, which depends on the
	// locale of the database.
	letters bool
}

// trigram is the number of consecutive letters or digits that the index needs.
const trigram = 3

// runs returns parts of the words that the index can find, with at most maxTrigrams trigrams: of
// each word, the longest part or its ends. Each of up to maxTrigrams words contributes a part,
// since every word narrows down the titles to compare.
func (x searchIndex) runs(words []string) (runs []string) {
	if !x.usable {
		return nil
	}
	var longest [][]rune
	for _, word := range words {
		best := ""
		for _, run := range strings.FieldsFunc(word, func(r rune) bool { return r >= utf8.RuneSelf || !alphanumeric(r) }) {
			best = longer(best, run)
		}
		if x.letters {
			for _, run := range strings.FieldsFunc(word, func(r rune) bool { return r < utf8.RuneSelf || !unicode.IsLetter(r) }) {
				best = longer(best, run)
			}
		}
		if run := []rune(best); len(run) >= trigram {
			longest = append(longest, run)
		}
	}
	// The shortest first: longer ones share the trigrams that these do not use.
	slices.SortStableFunc(longest, func(a, b []rune) int { return len(a) - len(b) })
	longest = longest[max(0, len(longest)-maxTrigrams):]
	budget := maxTrigrams
	for i, run := range longest {
		share := budget / (len(longest) - i)
		of := func(trigrams int) int { return trigrams + trigram - 1 } // in letters
		switch {
		case len(run) <= of(share):
			runs = append(runs, string(run))
			share = len(run) - of(0)
		case share == 1:
			runs = append(runs, string(run[:trigram]))
		default:
			runs = append(runs, string(run[:of(share-share/2)]), string(run[len(run)-of(share/2):]))
		}
		budget -= share
	}
	return runs
}

func alphanumeric(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

func longer(a, b string) string {
	if utf8.RuneCountInString(b) > utf8.RuneCountInString(a) {
		return b
	}
	return a
}
