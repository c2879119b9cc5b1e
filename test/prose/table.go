package prose

import "regexp"

type rule struct {
	phrase  *regexp.Regexp
	instead string
}

// table lists phrases that are always or nearly always wrong here, with their replacements. A word
// with a common good use has no entry; a rare good use is in the allow list.
var table = []rule{
	word(`behind`, `"after" or "following"`),
	word(`tell|tells|told|telling`, `"report", "send", "notify", "record" or "say which"`),
	word(`rang|rung|bell|bells`, `"signal" or "notify"`),
	word(`mend|mends|mended|mending`, `"fix" or "repair"`),
	word(`heed|heeds|heeded|heeding`, `"handle", "honor" or "act on"`),
	word(`nobody|somebody|whoever|whomever|he who`, `who it is: "no client", "another worker", "the caller"`),
	word(`anew|afresh`, `"again" or "from scratch"`),
	word(`(break|breaks|broke|broken|breaking|cut|cuts|cutting) off`, `"abort", "interrupt", "truncate" or "disconnect"`),
	word(`(go|goes|going|went|gone) on`, `"continue" or "resume"`),
	word(`(is|are|was|were|be) held to|holds? to`, `"must satisfy" or "is checked against"`),
	word(`to be had|can be had|could be had`, `"is available"`),
	word(`of (its|their|his|your|our) own`, `"its own", "separate" or "dedicated"`),
	word(`beside`, `"alongside", "next to" or "in addition to"`),
	word(`(look|looks|looked|looking) after`, `"watch" or "monitor"`),
	word(`(put|puts|lay|lays|laid) away`, `"complete" or "unload"`),
	word(`last words`, `"final output" or "final message"`),
	word(`forsaken|stillborn`, `"abandoned" or "failed to start"`),
	word(`(bring|brings|bringing|brought) (it |them )?back`, `"restore"`),
	word(`furnish|furnishes|furnished`, `"provision" or "set up"`),
	word(`so it is with|as it is`, `"the same applies to" or "by default"`),
	{use(`, for one[.,;:)]`), `"for example"`},
	word(`(stop|stops|stopped|stopping|end|ends|ended) in order`, `"gracefully"`),
	word(`wish|wishes|wished`, `"request" or "pending command"`),
	word(`save (where|that|when|for)`, `"except"`),
	word(`becomes? of`, `"happens to"`),
	word(`anybody|everybody`, `who it is: "any client", "every reader"`),
	word(`(take|takes|taken|took|taking) back`, `"revert", "undo" or "remove"`),
	word(`parted by`, `"separated by"`),
	word(`(come|comes|came) to nothing`, `"fail" or "have no result"`),
	word(`affair|affairs`, `who decides it`),
	word(`what there is`, `the thing itself`),
	word(`(hear|hears|heard) (of|from|what|it|that)|(is|are|was|were|not) heard`, `"receive", "learn" or "notice"`),
	word(`(stand|stands|stood) (there|here|in|on|at|where|right|still|below|above|among|between|alone|side)`, `"be", "appear" or "be stored"`),
	word(`in hand|torn out`, `"restore", "in progress" or "lost"`),
	word(`rings? (for|again|a|the|it)`, `"signal"`),
	word(`hearsay|hitherto|henceforth|lest|whither|wherefrom|thereof|therein|whence`, `a plain word`),
}

// allow lists good uses of phrases in the table.
var allow = []*regexp.Regexp{
	use(`behind (a|an|the|its|one|their|such a|that) ([\w-]+ )?(proxy|proxies|NAT|firewall|load balancer|gateway|API|mutex|lock)`),
	use(`(fall|falls|fallen|fell|falling|lag|lags|lagging|lies|far|bytes|MiB|events|too much) behind`),
	use(`(tell|tells|telling|told) (\w+ ){0,4}apart`),
	use(`(postgres or|postgres nor|user) nobody`),
	use(`nobody(:x:65534:65534:nobody|:nogroup| install ok)`),
	use(`forsaken (→|from)`),
	use(`(one|some|many|none|each|any) of (its|their|our) own \w+`),
	use(`Index\.Tell`),
	use(`never heard of`),
	use(`as far as it is`),
	use(`as it is (known|read|written|sent|made|called|stored|printed|received|produced)`),
}

func word(alternatives, instead string) rule {
	return rule{use(`(` + alternatives + `)\b`), instead}
}

func use(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b` + pattern)
}
