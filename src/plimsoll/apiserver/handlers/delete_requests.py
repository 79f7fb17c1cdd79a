"""Requests to delete one object or a collection: admission, deletion, response.

The rules of a deletion itself are in `delete.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.admission.chain import AdmissionChain
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.handlers.delete import DeleteHandler, deletion_warnings
from plimsoll.apiserver.handlers.negotiation import AcceptedMediaType, decode_body
from plimsoll.apiserver.handlers.options import DeletionOptions, parse_delete_options, parse_list_options
from plimsoll.apiserver.handlers.policy_attributes import delete_attributes
from plimsoll.apiserver.handlers.read import ReadHandler, get_stored
from plimsoll.apiserver.handlers.response_body import ResponseBuilder, add_warnings, build_raw_response
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.storage import Store, StoredObject
from plimsoll.apiserver.time_slices import EventLoopShare

Tree = dict[str, Any]

#: Deletions of a collection that are committed together.
_BATCH = 200


class DeleteRequestHandler:
    """Handler of DELETE requests."""

    def __init__(
        self,
        store: Store,
        admission: AdmissionChain,
        reader: ReadHandler,
        deleter: DeleteHandler,
        responses: ResponseBuilder,
        loop_share: EventLoopShare,
    ) -> None:
        self._store = store
        self._admission = admission
        self._reader = reader
        self._deleter = deleter
        self._responses = responses
        self._loop_share = loop_share

    async def delete(
        self, info: RequestInfo, request: ApiRequest, query: Mapping[str, str], accepted: AcceptedMediaType
    ) -> ApiResponse:
        options = parse_delete_options(query, _decode_options(request))
        stored = get_stored(self._store, info)
        tree = codec.decode_tree(stored.raw)
        warnings = self._admit_deletion(info, tree, options, request.user)
        deletion = self._deleter.delete(info, stored, options, tree)
        await self._store.wait_durable(deletion.revision)
        if deletion.is_status:
            response = build_raw_response(deletion.raw, accepted)
        else:
            response = self._responses.build_response(info, deletion.raw, accepted, query)
        add_warnings(response, deletion_warnings(info, options) + warnings)
        return response

    async def delete_collection(
        self, info: RequestInfo, request: ApiRequest, query: Mapping[str, str], accepted: AcceptedMediaType
    ) -> ApiResponse:
        options = parse_delete_options(query, _decode_options(request))
        with self._loop_share.start_slice(request.user.name) as time_slice:
            listing = await self._reader.list(info, parse_list_options(query), time_slice)
            warnings: list[str] = []
            for stored in listing.items:
                warnings += self._admit_deletion(info, codec.decode_tree(stored.raw), options, request.user)
                await time_slice.pause()
            last = 0
            for number, stored in enumerate(listing.items, 1):
                last = max(last, self._delete_listed(info, stored, options, request.user))
                if number % _BATCH == 0:
                    # Otherwise writes of other clients would wait for the commit of all deletions.
                    time_slice.release()
                    await self._store.wait_durable(last)
                await time_slice.pause()
            time_slice.release()
            await self._store.wait_durable(last)
            response = await self._responses.build_list_response(info, listing, accepted, query, time_slice)
            add_warnings(response, deletion_warnings(info, options) + warnings)
            return response

    def _delete_listed(
        self, info: RequestInfo, found: StoredObject, options: DeletionOptions, user: User
    ) -> int:
        """Delete an object of a collection unless it has been replaced since it was listed; return the
        revision to wait for.
        """
        current = self._store.get(found.key)
        if current is None or current.created != found.created:
            return 0
        tree = codec.decode_tree(current.raw)
        if current.revision != found.revision:
            self._admit_deletion(info, tree, options, user)
        return self._deleter.delete(info, current, options, tree).revision

    def _admit_deletion(
        self, info: RequestInfo, tree: Tree, options: DeletionOptions, user: User
    ) -> list[str]:
        """Run the plugins and the validating policies of a deletion; return warnings. ApiError."""
        warnings, policies = list[str](), self._admission.policies
        self._admission.admit_deletion(info, tree, user)
        if policies.validates:
            policies.validate(delete_attributes(info, tree, user, options, warnings))
        return warnings


def _decode_options(request: ApiRequest) -> Any:
    return decode_body(request.body, request.header("content-type")) if request.body.strip() else None
