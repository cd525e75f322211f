package dashboard

// Keys and key prefixes of the documents that the dashboard keeps in the store. They are fixed: a
// store that an earlier version wrote must still be readable. Code that copies a store uses them to
// tell what it may copy.
const (
	// AccountKey is the document of the admin account. All nodes that share a store share it.
	AccountKey = "dashboard/account"

	// RefusalsKey is the document of refused sign-ins. In a cluster each node has its own, whose
	// key is RefusalsKey, a slash and the name of the node.
	RefusalsKey = "dashboard/refused"

	// AuditPrefix begins the keys of audit log entries, one document per entry. All nodes that
	// share a store share them.
	AuditPrefix = "audit/"

	// FiguresPrefix begins the keys of the hourly figures behind the plots. They describe the
	// server that measured them and mean nothing in another store, so a copy of a store leaves them
	// out.
	FiguresPrefix = "figures/"
)
