package terminal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/overwinter-dev/overwinter/internal/conversation"
	"github.com/overwinter-dev/overwinter/internal/deadline"
	"github.com/overwinter-dev/overwinter/internal/event"
	"github.com/overwinter-dev/overwinter/internal/resource"
	"github.com/overwinter-dev/overwinter/internal/session"
	"github.com/overwinter-dev/overwinter/internal/workspacefile"
)

// Options are the choices of a view. The zero value is plain text.
type Options struct {
	// Rewrite is set if the writer is a terminal whose last rows may be rewritten.
	Rewrite bool
	// Color allows styles.
	Color bool
	// Width returns the number of columns of the terminal, 0 if unknown. Lines are wrapped only if
	// Rewrite is set too. Default: unknown.
	Width func() int
	// Full shows results, inputs and lists whole.
	Full bool
	// Times, if not nil, is the zone of the times at the beginning of lines.
	Times *time.Location
}

// Limits of abbreviated output.
const (
	lineRunes    = 160 // of a title, a reason, or an input, if the width is unknown
	resultLines  = 6   // of a result
	resultRunes  = 400 // of each of them
	changedFiles = 8   // in a row
	labelRunes   = 40  // of the name of a subagent
)

// View renders the events of one session. Its methods must be called from one goroutine. Every
// method returns an error of the writer, after which the view is unusable.
type View struct {
	options Options
	screen  screen

	threads map[string]*thread
	labels  map[string]int // how many subagents have that name
	running []*block       // unfinished calls and subagents, oldest first

	open    *block   // the text that is being written
	waiting []*block // texts of other conversations that have begun in the meantime

	last       *block  // the call whose line is the last that was written
	blank      bool    // the last line that was written is empty, or there is none
	lastIsText bool    // the last line that was written is of a text
	current    *thread // the conversation of the last line that belongs to one
	files      int     // consecutive lines about files
	moreFiles  int     // that were not
	removed    int     // consecutively removed blocks

	prompts     map[string]resource.PromptJSON // that are not over
	shownPrompt string                         // the prompt that was shown last
	processing  string                         // the prompt that is processed
	runs        map[string]*turn
	queue       event.Queue
	queued      []string // ids of the waiting prompts that events have named
	unseen      int      // how many more wait
	stamp       string
}

// thread is a conversation.
type thread struct {
	label  string // of a subagent
	depth  int    // 0 for the main one
	of     *block // that represents the subagent
	blocks map[string]*block
}

// block is the state of a block for which events are still expected.
type block struct {
	conversation.Block // Content is what was streamed so far

	thread    *thread
	label     string              // of a subagent
	hasOutput bool                // it has produced output
	printed   int                 // bytes of Content
	begun     bool                // something of it was shown
	newlines  int                 // printed once more text follows
	announced bool                // the line about its start was written
	result    *conversation.Block // that arrived before its end
}

// turn is an unfinished run.
type turn struct {
	start time.Time
	usage conversation.MetadataUpdate
}

// New returns a view that writes to w.
func New(w io.Writer, o Options) *View {
	return &View{
		options: o,
		screen:  screen{out: w, rewrite: o.Rewrite, color: o.Color, width: o.Width},
		threads: map[string]*thread{}, labels: map[string]int{},
		prompts: map[string]resource.PromptJSON{}, runs: map[string]*turn{}, blank: true,
	}
}

// Event shows the effect of an event or of a marker of the stream. An event whose data does not
// match its type is an error and changes nothing.
func (v *View) Event(e event.JSON) error {
	v.stamp = ""
	if v.options.Times != nil && e.Seq > 0 {
		v.stamp = time.Time(e.At).In(v.options.Times).Format("15:04:05.000  ")
	}
	if err := v.event(e); err != nil {
		return fmt.Errorf("show event %d, %s: %w", e.Seq, OneLine(e.Type, lineRunes), err)
	}
	return v.done()
}

// Notice shows a line that does not come from the session.
func (v *View) Notice(text string) error {
	v.stamp = ""
	for _, line := range lines(text) {
		v.line(nil, span{yellow, line})
	}
	return v.done()
}

// Prompt shows a text in the last row of a terminal, in front of the input; "" shows none.
func (v *View) Prompt(text string) error {
	v.screen.prompt = text
	return v.done()
}

// OwnInput makes the view show typed text with Typing, because the terminal does not echo.
func (v *View) OwnInput() { v.screen.ownInput = v.options.Rewrite }

// Typing shows the incomplete typed line.
func (v *View) Typing(text string) error {
	v.screen.typing = text
	return v.done()
}

// Redraw shows the footer again after the terminal was resized.
func (v *View) Redraw() error {
	v.screen.erase()
	return v.done()
}

// Entered records that the user has typed a line, which the terminal itself has shown.
func (v *View) Entered(text string) error {
	v.screen.entered(text)
	return v.done()
}

// Close removes the temporary rows and ends the last line.
func (v *View) Close() error {
	v.flushCounts()
	v.screen.newline()
	v.screen.erase()
	v.screen.footer, v.screen.prompt = nil, ""
	return v.screen.flush()
}

func (v *View) done() error {
	v.footer()
	v.screen.settle()
	return v.screen.flush()
}

// rich reports whether signs, margins and empty lines replace words.
func (v *View) rich() bool { return v.options.Rewrite || v.options.Color }

// line writes one line; t is the line's conversation, or nil.
func (v *View) line(t *thread, spans ...span) {
	v.flushCounts()
	v.print(t, spans...)
}

func (v *View) print(t *thread, spans ...span) {
	v.enter(t)
	v.screen.line(v.margin(t), spans...)
	v.last, v.blank, v.lastIsText = nil, false, false
}

// enter writes a header if the next lines belong to another conversation.
func (v *View) enter(t *thread) {
	if t == nil || t == v.current {
		return
	}
	v.current = t
	if t.depth > 0 && v.rich() && (t.of == nil || v.last != t.of) {
		v.screen.line(nil, span{dim, v.stamp + strings.Repeat("│ ", t.depth-1) + "╭ "}, span{cyan, t.label})
		v.last, v.blank, v.lastIsText = nil, true, false // it separates like an empty line
	}
}

// gap writes an empty line if the view is rich and the last line is not empty.
func (v *View) gap(t *thread) {
	if !v.rich() {
		return
	}
	v.flushCounts()
	v.enter(t)
	if !v.blank {
		v.print(t)
		v.blank = true
	}
}

// margin returns the beginning of every line of a conversation.
func (v *View) margin(t *thread) []span {
	var out []span
	if v.stamp != "" {
		out = append(out, span{dim, v.stamp})
	}
	switch {
	case t == nil || t.depth == 0:
	case v.rich():
		out = append(out, span{dim, strings.Repeat("│ ", t.depth)})
	default:
		out = append(out, span{plain, "[" + t.label + "] "})
	}
	return out
}

// event dispatches an event by its type.
func (v *View) event(e event.JSON) error {
	switch e.Type {
	case event.MarkerCaughtUp:
		return nil
	case event.MarkerGap:
		return with(e.Data, func(d struct{ From, To int64 }) {
			v.line(nil, span{yellow, fmt.Sprintf("events %d to %d have been deleted", d.From, d.To)})
		})
	case event.MarkerEnd:
		v.line(nil, span{dim, "the session has ended"})
		return nil
	case event.TypeStatus:
		return with(e.Data, v.status)
	case event.TypePrompt:
		return with(e.Data, func(d event.PromptData) { v.prompt(d.Prompt.Whole()) })
	case event.TypeQueue:
		return with(e.Data, v.takeQueue)
	case event.TypeTurnStart:
		return with(e.Data, func(d event.TurnStartData) { v.turnStart(d, time.Time(e.At)) })
	case event.TypeTurnEnd:
		return with(e.Data, func(d event.TurnEndData) { v.turnEnd(d, time.Time(e.At)) })
	case event.TypeQuestion:
		return with(e.Data, func(d event.QuestionData) { v.question(d.Question) })
	case event.TypeQuestionResolved:
		return with(e.Data, v.resolved)
	case event.TypeFile:
		return with(e.Data, v.file)
	case event.TypeSetup:
		return with(e.Data, func(d event.SetupData) {
			v.line(nil, span{dim, fmt.Sprintf("workspace %s %s", OneLine(d.Stage, lineRunes), OneLine(d.Status, lineRunes))})
		})
	case event.TypeNetwork:
		return with(e.Data, func(d event.NetworkData) {
			v.line(nil, span{dim, "network " + OneLine(d.Verdict, lineRunes) + ": " + OneLine(destination(d), lineRunes)})
		})
	case event.TypeDeadline:
		return with(e.Data, func(d event.DeadlineData) { v.deadline(d, time.Time(e.At)) })
	case event.TypeCommand:
		return with(e.Data, func(d event.CommandData) { v.command(d.Command) })
	case event.TypeSettings:
		return with(e.Data, v.settings)
	}
	return v.conversationEvent(e)
}

// conversationEvent shows the agent's text, calls and reports.
func (v *View) conversationEvent(e event.JSON) error {
	switch e.Type {
	case string(conversation.EventBlockStart):
		return with(e.Data, func(d conversation.BlockStart) { v.blockStart(v.thread(e.ConversationID), d.Block) })
	case string(conversation.EventTextDelta):
		return with(e.Data, func(d conversation.TextDelta) { v.textDelta(v.thread(e.ConversationID), d) })
	case string(conversation.EventBlockUpdate):
		return with(e.Data, func(d conversation.BlockUpdate) { v.blockUpdate(v.thread(e.ConversationID), d) })
	case string(conversation.EventBlockComplete):
		return with(e.Data, func(d conversation.BlockComplete) { v.blockComplete(v.thread(e.ConversationID), d.Block) })
	case string(conversation.EventBlockRemoved):
		return with(e.Data, func(d conversation.BlockRemoved) { v.blockRemoved(v.thread(e.ConversationID), d.BlockID) })
	case string(conversation.EventMetadataUpdate):
		return with(e.Data, func(d conversation.MetadataUpdate) { v.metadata(e.RunID, d) })
	case string(conversation.EventTitle):
		return with(e.Data, func(d conversation.Title) {
			v.line(nil, span{dim, "title: "}, span{bold, OneLine(d.Title, lineRunes)})
		})
	case string(conversation.EventScreenshot):
		return with(e.Data, func(d conversation.Screenshot) {
			v.report("screenshot", d.Description+" ("+d.Image.MediaType+", "+d.Image.ID+")")
		})
	case string(conversation.EventGitState):
		return with(e.Data, func(d conversation.GitState) {
			if d.Source != conversation.GitOfWorkspace { // not worth a line in a conversation
				v.report("branch", d.Branch)
			}
		})
	case string(conversation.EventReviewRequested):
		return with(e.Data, func(d conversation.Review) { v.report("review requested", d.Title) })
	case string(conversation.EventReviewResult):
		return with(e.Data, v.reviewResult)
	case string(conversation.EventPullRequest):
		return with(e.Data, func(d conversation.PullRequest) {
			v.report("pull request, "+string(d.Operation), strings.Join(strings.Fields(d.Title+" "+d.Branch+" "+string(d.State)+" "+d.URL), " "))
		})
	case string(conversation.EventError):
		return with(e.Data, func(d conversation.Problem) {
			v.line(nil, span{red, fmt.Sprintf("error %s: %s", OneLine(d.Code, lineRunes), v.shortenTo(ProblemRunes, d.Message))})
		})
	}
	v.line(nil, span{dim, OneLine(e.Type+" "+string(e.Data), lineRunes)}) // of a server that is newer
	return nil
}

// reviewResult prints a line for a review, and one for each finding.
func (v *View) reviewResult(r conversation.ReviewResult) {
	name := "review"
	if r.Verdict != "" {
		name += ", " + strings.ReplaceAll(string(r.Verdict), "_", " ")
	}
	v.report(name, r.Summary)
	for _, f := range r.Findings {
		at := f.File
		if f.Line > 0 {
			at += ":" + strconv.FormatInt(f.Line, 10)
		}
		v.report("finding", strings.Join(strings.Fields(string(f.Severity)+" "+at+" "+f.Comment), " "))
	}
}

// with calls use with the data of an event.
func with[T any](data json.RawMessage, use func(T)) error {
	var d T
	if err := json.Unmarshal(data, &d); err != nil {
		return err
	}
	use(d)
	return nil
}

// shorten converts a text to one line.
func (v *View) shorten(text string) string { return v.shortenTo(lineRunes, text) }

func (v *View) shortenTo(runes int, text string) string {
	if v.options.Full {
		return OneLine(text, 0)
	}
	return OneLine(text, runes)
}

func (v *View) status(d event.StatusData) {
	st := dim
	if d.Status == session.Error {
		st = red
	}
	v.line(nil, span{st, fmt.Sprintf("session %s%s%s", OneLine(string(d.Status), lineRunes), inBrackets(v.shorten(d.Reason)), receipt(d.Receipt))})
}

// report shows a report that the agent made with a tool of overwinter.
func (v *View) report(what, text string) {
	v.line(nil, span{dim, what + ": "}, span{bold, OneLine(text, lineRunes)})
}

// deadline announces what the session will do soon. A checkpoint is not announced: it takes only a
// moment, and its command is shown.
func (v *View) deadline(d event.DeadlineData, now time.Time) {
	if d.Kind == deadline.Checkpoint {
		return
	}
	what := map[deadline.Kind]string{
		deadline.Sleep: "hibernates", deadline.Expiry: "moves to a new sandbox",
	}[d.Kind]
	if what == "" { // of a server that is newer
		what = "reaches its " + OneLine(string(d.Kind), lineRunes) + " deadline"
	}
	v.line(nil, span{dim, fmt.Sprintf("session %s in %s unless something happens first", what, time.Time(d.At).Sub(now).Round(time.Second))})
}

// receipt describes the result of a restore.
func receipt(r *resource.ReceiptJSON) string {
	if r == nil {
		return ""
	}
	text := ", restored: " + OneLine(string(r.Kind), lineRunes)
	if len(r.Missing) > 0 {
		text += ", without " + OneLine(strings.Join(r.Missing, ", "), lineRunes)
	}
	if len(r.Unchecked) > 0 {
		text += ", not compared: " + OneLine(strings.Join(r.Unchecked, ", "), lineRunes)
	}
	return text
}

func inBrackets(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

func (v *View) prompt(p resource.PromptJSON) {
	known, seen := v.prompts[p.ID]
	if p.Content == "" { // only the first event of a prompt has it
		p.Content = known.Content
	}
	switch {
	case !p.Status.Final():
		v.prompts[p.ID] = p
		if p.Status == session.PromptProcessing {
			v.processing = p.ID
		} else if !seen && (v.processing != "" || len(v.prompts) > 1) {
			v.line(nil, span{dim, "queued: " + v.shorten(p.Content)})
		}
		if p.BlockedReason != "" && p.BlockedReason != known.BlockedReason {
			v.line(nil, span{red, fmt.Sprintf("blocked%s: %s", inBrackets(v.shorten(p.BlockedReason)), v.shorten(p.Content))})
		}
	default:
		delete(v.prompts, p.ID)
		if v.processing == p.ID {
			v.processing = ""
		} else if seen && known.Status == session.PromptQueued {
			v.line(nil, span{dim, fmt.Sprintf("%s%s: %s", p.Status, inBrackets(v.shorten(p.Reason)), v.shorten(p.Content))})
		}
	}
}

// takeQueue records the waiting prompts. Plain text shows them as lines; a terminal shows them in
// the footer.
func (v *View) takeQueue(d event.QueueData) {
	before := v.queuedAfter()
	v.queue.Apply(d)
	v.queued = v.queued[:0]
	for _, item := range v.queue.Items() {
		if item.Status == session.PromptQueued {
			v.queued = append(v.queued, item.PromptID)
		}
	}
	v.unseen = max(0, int(d.Queued)-len(v.queued))
	if n := v.queuedAfter(); n != before && n > 1 && !v.options.Rewrite {
		v.line(nil, span{dim, fmt.Sprintf("in the queue: %d", n)})
	}
}

// queuedAfter returns the number of prompts that wait for the processed one.
func (v *View) queuedAfter() int {
	n := 0
	for _, id := range v.queued {
		if id != v.processing {
			n++
		}
	}
	return n + v.unseen
}

func (v *View) turnStart(d event.TurnStartData, at time.Time) {
	if d.Attempt > 1 {
		v.line(nil, span{dim, fmt.Sprintf("the turn continues, attempt %d", d.Attempt)})
		return
	}
	v.runs[d.RunID] = &turn{start: at}
	v.processing = d.PromptID
	if p, ok := v.prompts[d.PromptID]; ok {
		v.text(v.thread(conversation.Main), p.Content)
		v.shownPrompt = d.PromptID
	}
}

// text shows a message of a person, or of an agent to its subagent.
func (v *View) text(t *thread, content string) {
	v.gap(t)
	all := lines(content)
	for i, line := range all {
		if !v.options.Full && i == resultLines && len(all) > resultLines+1 {
			v.line(t, span{dim, fmt.Sprintf("  … %d more lines", len(all)-i)})
			break
		}
		mark := "  "
		if i == 0 && v.rich() {
			mark = "❯ "
		} else if i == 0 {
			mark = "prompt: "
		}
		v.line(t, span{cyan, mark}, span{bold, v.cut(line)})
	}
	v.gap(t)
}

// cut truncates one line of a text.
func (v *View) cut(line string) string {
	if v.options.Full {
		return line
	}
	if runes := []rune(line); len(runes) > resultRunes {
		return string(runes[:resultRunes-1]) + "…"
	}
	return line
}

func (v *View) metadata(runID string, d conversation.MetadataUpdate) {
	if t := v.runs[runID]; t != nil && (d.Usage != conversation.Usage{} || d.CostUSD != nil && *d.CostUSD > 0) {
		d.Model = cmp.Or(d.Model, t.usage.Model)
		t.usage = d
	}
}

func (v *View) turnEnd(d event.TurnEndData, at time.Time) {
	text := string(d.Outcome) + inBrackets(v.shorten(d.Reason))
	st := map[session.Outcome]style{session.OutcomeCompleted: green, session.OutcomeCancelled: yellow}[d.Outcome]
	parts := []string{}
	if t := v.runs[d.RunID]; t != nil {
		if u := t.usage.Usage; u.InputTokens+u.OutputTokens > 0 {
			parts = append(parts, fmt.Sprintf("%d tokens in, %d out", u.InputTokens, u.OutputTokens))
		}
		if cost := t.usage.CostUSD; cost != nil && *cost > 0 {
			parts = append(parts, fmt.Sprintf("$%.4f", *cost))
		}
		if took := roundTime(at.Sub(t.start)); took > 0 {
			parts = append(parts, took.String())
		}
		if t.usage.Model != "" {
			parts = append(parts, OneLine(t.usage.Model, lineRunes))
		}
		delete(v.runs, d.RunID)
	}
	v.finishTexts()
	v.gap(nil)
	v.line(nil, span{cmp.Or(st, red), v.sign("turn ", "── ") + text}, span{dim, tail(parts)})
	v.gap(nil)
	v.forget()
}

func roundTime(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// tail joins the trailing parts of a line.
func tail(parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	return " · " + strings.Join(parts, " · ")
}

// sign returns the word or, in a rich view, the sign.
func (v *View) sign(word, sign string) string {
	if v.rich() {
		return sign
	}
	return word
}

// forget drops the state that later events cannot refer to; background work may continue.
func (v *View) forget() {
	for _, t := range v.threads {
		for id, b := range t.blocks {
			if !b.Status.Open() {
				delete(t.blocks, id)
			}
		}
	}
}

func (v *View) file(d event.FileData) {
	v.flushRemoved()
	if v.files++; v.files > changedFiles && !v.options.Full {
		v.moreFiles++
		return
	}
	text := OneLine(d.Path, lineRunes)
	if d.Change != workspacefile.Deleted {
		text += " (" + size(d.Size) + ")"
	}
	v.print(nil, span{dim, fmt.Sprintf("file %s: %s", OneLine(string(d.Change), lineRunes), text)})
}

// flushRemoved shows the blocks that the agent has removed.
func (v *View) flushRemoved() {
	n := v.removed
	v.removed = 0
	if n > 0 {
		v.print(nil, span{yellow, fmt.Sprintf("removed: %d blocks", n)})
	}
}

// flushCounts shows the pending counts.
func (v *View) flushCounts() {
	v.flushRemoved()
	more := v.moreFiles
	v.files, v.moreFiles = 0, 0
	if more > 0 {
		v.print(nil, span{dim, fmt.Sprintf("and %d more files", more)})
	}
}

// thread returns the conversation with that id and creates it if it is new.
func (v *View) thread(id string) *thread {
	id = cmp.Or(id, conversation.Main)
	t := v.threads[id]
	if t == nil {
		t = &thread{blocks: map[string]*block{}}
		if id != conversation.Main {
			t.depth, t.label = 1, OneLine(id, labelRunes)
		}
		v.threads[id] = t
	}
	return t
}

// footer shows the unfinished calls, the newest last, as far as there is room.
func (v *View) footer() {
	v.screen.footer = nil
	if !v.options.Rewrite {
		return
	}
	rows := v.running
	if len(rows) > footerRows {
		v.screen.footer = append(v.screen.footer, v.screen.row(span{dim, fmt.Sprintf("  … and %d more", len(rows)-footerRows)}))
		rows = rows[len(rows)-footerRows:]
	}
	for _, b := range rows {
		v.screen.footer = append(v.screen.footer, v.screen.row(append(v.margin(b.thread), v.call(b)...)...))
	}
	if n := v.queuedAfter(); n > 0 && v.processing != "" {
		v.screen.footer = append(v.screen.footer, v.screen.row(span{dim, fmt.Sprintf("  in the queue: %d", n)}))
	}
}

// footerRows is the maximum number of running calls in the footer.
const footerRows = 8

// destination formats the destination of a network event.
func destination(d event.NetworkData) string {
	host := d.Host
	switch {
	case host == "" && d.IP == "":
		return "other destinations"
	case host == "":
		host = d.IP
	}
	return fmt.Sprintf("%s port %d (%s)", host, d.Port, d.Protocol)
}
