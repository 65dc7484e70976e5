"""The placement kernel, shared by scheduler, translator, summarizer, syncer and commands.  Pure, except `feeds`.

names           kinds, objects, mailboxes, collections, reasons
types           one typed reader per kind
select          which objects an EdgePlacement selects; `spec.where`
resolve         the destinations of an EdgePlacement
project         one copy in a mailbox: stripped, merged, customized, marked
customize       parameters and Customizers
syncer_config   the spec of a SyncerConfig, and the syncer's report in its status
index           which object belongs in which mailbox
guard           how much may be withdrawn at once
state           all observed objects, and the keys that each event affects
feeds           informers of all objects in all workspaces
"""
