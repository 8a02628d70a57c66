"""An executor of the official A2A SDK behind a card: `dragoman serve examples/frameworks/a2a_sdk_agent.py`.

It is written for a2a-sdk 1.x, and knows nothing of Dragoman.
"""

from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater


class Booking(AgentExecutor):
    """Asks for the day, and books a table."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Ask in the first call, book in the second."""
        task = context.current_task
        if task is None:
            assert context.message is not None
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        if context.current_task is None:
            await updater.requires_input(updater.new_agent_message([new_text_part("For which day?")]))
            return
        await updater.add_artifact([new_text_part(f"Booked for {context.get_user_input()}")])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Nothing is left to undo."""
        await TaskUpdater(event_queue, context.task_id or "", context.context_id or "").cancel()
